// What attention over some of the keys gives for a tile's rows, and how two such results become one.
#pragma once

#include "attention_schedule.h"

namespace evenflow::EVENFLOW_ISA {

// A masked score lies so far below any maximum, the initial one included, that its exponential is exactly 0.
constexpr float MASKED = -1e30f;
constexpr float INITIAL_MAX = -1e20f;

// Unnormalised output, maximum and sixteen sums of each row.
struct PartialResult {
    float* acc;
    float* max;
    float* sum;

    static std::size_t floats(int dim) { return std::size_t(ROW_TILE) * (dim + 1 + LANES); }
    PartialResult(float* memory, int dim) : acc(memory), max(acc + ROW_TILE * dim), sum(max + ROW_TILE) {}

    void clear(int rows, int dim) {
        std::memset(acc, 0, sizeof(float) * rows * dim);
        std::memset(sum, 0, sizeof(float) * rows * LANES);
        for (int r = 0; r < ROW_TILE; ++r) max[r] = INITIAL_MAX;
    }
};

inline void merge(PartialResult& into, const PartialResult& part, int rows, int dim) {
    for (int r = 0; r < rows; ++r) {
        const float top = into.max[r] > part.max[r] ? into.max[r] : part.max[r];
        const F32 old_weight = exp2<6>(splat(into.max[r] - top)), new_weight = exp2<6>(splat(part.max[r] - top));
        const auto blend = [&](float* a, const float* b) { store(a, fma(load(b), new_weight, load(a) * old_weight)); };
        for (int d = 0; d < dim; d += LANES) blend(into.acc + r * dim + d, part.acc + r * dim + d);
        blend(into.sum + r * LANES, part.sum + r * LANES);
        into.max[r] = top;
    }
}

}  // namespace evenflow::EVENFLOW_ISA
