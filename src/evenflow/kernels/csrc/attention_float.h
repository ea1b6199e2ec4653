// A tile's rows between the two products of attention, where keys and values are floats or bf16.
#pragma once

#include "attention_rows.h"

namespace evenflow::EVENFLOW_ISA {

template <class T, class Tiles>
class FloatRows {
   public:
    static constexpr bool LOOKS_AHEAD = false;

   private:
    static constexpr int EXP_DEGREE = sizeof(T) == 4 ? 6 : 4;
    alignas(64) T q[ROW_TILE * MAX_HEAD_DIM];
    alignas(64) float scores[ROW_TILE * SCORE_STRIDE];
    alignas(64) T p[ROW_TILE * P_STRIDE];
    Groups where;

   public:
    void take_query(int r, int, const float* row, int dim) { convert_row(row, dim, q + r * dim); }

    void take_group(const KvPool& pool, int g, std::uint8_t* chunk, int group) {
        where.take<T>(pool, g, chunk, group);
    }

    void attend(Tiles& products, const Limits& limits, int rows, int groups, int dim, float scale_log2,
                const Ahead&, PartialResult& state) {
        products.scores(q, rows, where.keys, groups, dim, scores, SCORE_STRIDE);
        for (int r = 0; r < rows; ++r) {
            float* row = scores + r * SCORE_STRIDE;
            const float highest = mask(row, limits, r, groups);
            state.max[r] = larger(INITIAL_MAX, highest * scale_log2);
        }
        for (int r = 0; r < rows; ++r) soften(r, seen_groups(limits, r, groups), groups, scale_log2, state);
        products.values(p, rows, where.values, groups, dim, state.acc);
    }

   private:
    // Scores to probabilities, relative to the row's maximum. Groups that it sees nothing of get zeros, and so does the second
    // of the last pair where a sequence has but the first.
    EVENFLOW_INLINE void soften(int r, GroupRange seen, int groups, float scale_log2, PartialResult& state) {
        const float* row = scores + r * SCORE_STRIDE;
        T* to = p + r * P_STRIDE;
        const F32 top = splat(-state.max[r]);
        F32 sum = splat(0.0f);
        for (int g = 0; g < seen.begin; ++g) store(to + g * GROUP, splat(0.0f));
        for (int g = seen.begin; g < seen.end; ++g) {
            const F32 e = exp2<EXP_DEGREE>(fma(load(row + g * GROUP), splat(scale_log2), top));
            sum = sum + e;
            store(to + g * GROUP, e);
        }
        for (int g = seen.end; g < groups + groups % 2; ++g) store(to + g * GROUP, splat(0.0f));
        store(state.sum + r * LANES, sum);
    }
};

}  // namespace evenflow::EVENFLOW_ISA
