// A tile's rows between the two products of attention, where keys and values are int8: both products are of integers.
//
//     scores    q (16 bits, a scale per row)  .  keys (8 bits, a scale per key)
//     values    P (16 bits, a scale per row)  .  values (8 bits); a key's scale for its value is in its P
//
// Sixteen bits are two bytes that are multiplied apart, as if they were two rows: nothing is widened, integers are exact, and
// what rounds is the cache alone. A byte would do for most queries, not for probabilities: hundreds of keys that each have
// less than 1/500 of the highest one's make up much of a long tail, and would all become zero.
#pragma once

#include "attention_rows.h"
#include "rows.h"

namespace evenflow::EVENFLOW_ISA {

template <class Tiles>
class Int8Rows {
   public:
    static constexpr bool LOOKS_AHEAD = true;

   private:
    static constexpr float QUERY_WHOLE = 127.0f * 256.0f;
    static constexpr float WEIGHT_WHOLE = 255.0f * 256.0f;
    static constexpr float TINY = 1e-30f;        // weights below are zero
    static constexpr float TINY_QUERY = 1e-15f;  // a smaller query is all zeros; MASKED times its scale must stay far below

    static constexpr int STAGE = KEY_GROUPS * GROUP;  // keys whose products stay in the nearest cache until they are scores

    // Rows of upper bytes, then as many of lower bytes.
    alignas(64) std::int8_t q[2 * ROW_TILE * MAX_HEAD_DIM];
    alignas(64) std::int32_t stage[2 * ROW_TILE * STAGE];
    alignas(64) float scores[ROW_TILE * SCORE_STRIDE];
    alignas(64) std::uint8_t p[2 * ROW_TILE * P_STRIDE];
    alignas(64) std::int32_t sums[2 * ROW_TILE * MAX_HEAD_DIM];
    alignas(64) float key_scales[PARTITION], value_scales[PARTITION];
    float query_scales[ROW_TILE], weight_scales[ROW_TILE];
    Groups where;

   public:
    void take_query(int r, int rows, const float* row, int dim) {
        const float top = larger(largest_magnitude(row, dim), TINY_QUERY);
        const F32 inverse = splat(QUERY_WHOLE / top);
        query_scales[r] = top / QUERY_WHOLE;
        for (int d = 0; d < dim; d += LANES) {
            const F32 whole = round_even(load(row + d) * inverse);
            const F32 upper = round_even((whole + splat(0.25f)) * splat(1.0f / 256.0f));  // no tie: the rest is -128 to 127
            store(q + r * dim + d, upper);
            store(q + (rows + r) * dim + d, fma(upper, splat(-256.0f), whole));
        }
    }

    void take_group(const KvPool& pool, int g, std::uint8_t* chunk, int group) {
        where.take<std::int8_t>(pool, g, chunk, group);
        store(key_scales + g * GROUP, load(pool.key_scales(chunk) + group * GROUP));
        store(value_scales + g * GROUP, load(pool.value_scales(chunk) + group * GROUP));
    }

    void attend(Tiles& products, const Limits& limits, int rows, int groups, int dim, float scale_log2, const Ahead& ahead,
                PartialResult& state) {
        for (int g = 0; g < groups; g += KEY_GROUPS) {
            const int count = smaller(KEY_GROUPS, groups - g);
            products.scores(q, 2 * rows, where.keys + g, count, dim, stage, STAGE);
            for (int i = g; rows <= SHORT_ROWS && i < g + count; ++i) ask_for(where.values[i], GROUP * dim);
            for (int r = 0; r < rows; ++r) scale_scores(r, rows, g, count);
        }
        for (int r = 0; r < rows; ++r) {
            float* row = scores + r * SCORE_STRIDE;
            const float highest = mask(row, limits, r, groups);
            const float scale = query_scales[r] * scale_log2;
            state.max[r] = larger(INITIAL_MAX, highest * scale);
            ahead.ask(r, rows);
            soften(r, rows, seen_groups(limits, r, groups), groups, scale, state);
        }
        products.values(p, 2 * rows, where.values, groups, dim, sums);
        for (int r = 0; r < rows; ++r) {
            const F32 scale = splat(weight_scales[r]);
            for (int d = 0; d < dim; d += LANES)
                store(state.acc + r * dim + d, both(sums + r * dim + d, sums + (rows + r) * dim + d) * scale);
        }
    }

   private:
    EVENFLOW_INLINE static F32 both(const std::int32_t* upper, const std::int32_t* lower) {
        return fma(to_f32(load_i32(upper)), splat(256.0f), to_f32(load_i32(lower)));
    }

    // Products of bytes to scores, but for the row's own scale.
    EVENFLOW_INLINE void scale_scores(int r, int rows, int first, int count) {
        const std::int32_t *upper = stage + r * STAGE, *lower = upper + rows * STAGE;
        float* to = scores + r * SCORE_STRIDE + first * GROUP;
        const float* scales = key_scales + first * GROUP;
        for (int at = 0; at < count * GROUP; at += GROUP)
            store(to + at, both(upper + at, lower + at) * load(scales + at));
    }

    // Scores to probabilities times their values' scales, in bytes. (FloatRows::soften says which groups get zeros.)
    EVENFLOW_INLINE void soften(int r, int rows, GroupRange seen, int groups, float scale, PartialResult& state) {
        float* row = scores + r * SCORE_STRIDE;
        const F32 top = splat(-state.max[r]);
        F32 sum = splat(0.0f), highest = splat(0.0f);
        for (int g = seen.begin; g < seen.end; ++g) {
            const F32 e = exp2<4>(fma(load(row + g * GROUP), splat(scale), top));
            const F32 weight = e * load(value_scales + g * GROUP);
            sum = sum + e;
            highest = max(highest, weight);
            store(row + g * GROUP, weight);
        }
        store(state.sum + r * LANES, sum);
        const float peak = reduce_max(highest);
        const F32 inverse = splat(peak > TINY ? WEIGHT_WHOLE / peak : 0.0f);
        weight_scales[r] = peak / WEIGHT_WHOLE;
        std::uint8_t *upper = p + r * P_STRIDE, *lower = p + (rows + r) * P_STRIDE;
        clear(upper, lower, 0, seen.begin);
        int g = seen.begin;
        for (; g + 4 <= seen.end; g += 4) {
            F32 x[4];
            unrolled<4>([&](int i) { x[i] = load(row + (g + i) * GROUP) * inverse; });
            store_bytes(upper + g * GROUP, lower + g * GROUP, x);
        }
        for (; g < seen.end; ++g) store_bytes(upper + g * GROUP, lower + g * GROUP, load(row + g * GROUP) * inverse);
        clear(upper, lower, seen.end, groups + groups % 2);
    }

    EVENFLOW_INLINE static void clear(std::uint8_t* upper, std::uint8_t* lower, int begin, int end) {
        if (begin == end) return;
        std::memset(upper + begin * GROUP, 0, std::size_t(end - begin) * GROUP);
        std::memset(lower + begin * GROUP, 0, std::size_t(end - begin) * GROUP);
    }
};

}  // namespace evenflow::EVENFLOW_ISA
