// The two small matrix products inside attention, over vector registers.
//
//   score_tile    S[row][16 g + lane] = q[row] . key               lanes are keys
//   value_tile    acc[row][d] = alpha[row] * acc[row][d] + sum over keys of P[row][key] * value[key][d]      lanes are d
//
// Both walk 32-bit units (a float, or two bf16) and multiply a broadcast unit of the left side with a cache line of the
// right side, in a register tile of TILE_ROWS x TILE_VECS accumulators. Every element of a result is one chain of
// additions in the order of d (of keys), whatever the tile it falls in: that makes a row's bits its own.
#pragma once

#include "kv_pool.h"
#include "vec.h"

namespace evenflow::EVENFLOW_ISA {

struct FloatDot {
    using Element = float;
    static EVENFLOW_INLINE F32 accumulate(F32 acc, Units a, Units b) { return fma(as_f32(a), as_f32(b), acc); }
};
struct PairDot {
    using Element = bf16;
    static EVENFLOW_INLINE F32 accumulate(F32 acc, Units a, Units b) { return dot_bf16(acc, a, b); }
};

template <class Element>
constexpr int PER_UNIT = 4 / int(sizeof(Element));

// q: rows of `steps` units. keys: one pointer per group of 16, to lines of 16 units.
template <class Dot, int ROWS, int GROUPS>
EVENFLOW_INLINE void score_registers(const std::uint32_t* q, const std::uint32_t* const* keys, int steps, float* out,
                                     int out_stride) {
    F32 acc[ROWS][GROUPS];
    for (int r = 0; r < ROWS; ++r)
        for (int g = 0; g < GROUPS; ++g) acc[r][g] = splat(0.0f);
    for (int s = 0; s < steps; ++s) {
        Units line[GROUPS];
        for (int g = 0; g < GROUPS; ++g) line[g] = load_units(keys[g] + s * LANES);
        for (int r = 0; r < ROWS; ++r) {
            const Units left = splat_unit(q[r * steps + s]);
            for (int g = 0; g < GROUPS; ++g) acc[r][g] = Dot::accumulate(acc[r][g], left, line[g]);
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int g = 0; g < GROUPS; ++g) store(out + r * out_stride + g * LANES, acc[r][g]);
}

template <class Dot>
void score_tile(const std::uint32_t* q, int rows, const std::uint32_t* const* keys, int groups, int steps, float* out,
                int out_stride) {
    for (int r = 0; r < rows; r += TILE_ROWS) {
        const int row_count = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;
        for (int g = 0; g < groups; g += TILE_VECS) {
            const int group_count = groups - g < TILE_VECS ? groups - g : TILE_VECS;
            with_constant<TILE_ROWS>(row_count, [&](auto R) {
                with_constant<TILE_VECS>(group_count, [&](auto G) {
                    score_registers<Dot, decltype(R)::value, decltype(G)::value>(
                        q + r * steps, keys + g, steps, out + r * out_stride + g * LANES, out_stride);
                });
            });
        }
    }
}

// p: rows of p_stride units, keys in order. values: one pointer per group, to 16 / PER_UNIT rows of dim units.
template <class Dot, int ROWS, int VECS>
EVENFLOW_INLINE void value_registers(const std::uint32_t* p, int p_stride, const std::uint32_t* const* values, int groups,
                                     int dim, int d, const float* alpha, float* acc_rows) {
    constexpr int STEPS = GROUP / PER_UNIT<typename Dot::Element>;
    F32 acc[ROWS][VECS];
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECS; ++v) acc[r][v] = load(acc_rows + r * dim + d + v * LANES) * splat(alpha[r]);
    for (int g = 0; g < groups; ++g) {
        for (int s = 0; s < STEPS; ++s) {
            Units line[VECS];
            for (int v = 0; v < VECS; ++v) line[v] = load_units(values[g] + s * dim + d + v * LANES);
            for (int r = 0; r < ROWS; ++r) {
                const Units left = splat_unit(p[r * p_stride + g * STEPS + s]);
                for (int v = 0; v < VECS; ++v) acc[r][v] = Dot::accumulate(acc[r][v], left, line[v]);
            }
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECS; ++v) store(acc_rows + r * dim + d + v * LANES, acc[r][v]);
}

template <class Dot>
void value_tile(const std::uint32_t* p, int p_stride, int rows, const std::uint32_t* const* values, int groups, int dim,
                const float* alpha, float* acc) {
    const int vecs = dim / LANES;
    for (int r = 0; r < rows; r += TILE_ROWS) {
        const int row_count = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;
        for (int v = 0; v < vecs; v += TILE_VECS) {
            const int vec_count = vecs - v < TILE_VECS ? vecs - v : TILE_VECS;
            with_constant<TILE_ROWS>(row_count, [&](auto R) {
                with_constant<TILE_VECS>(vec_count, [&](auto V) {
                    value_registers<Dot, decltype(R)::value, decltype(V)::value>(
                        p + r * p_stride, p_stride, values, groups, dim, v * LANES, alpha + r, acc + r * dim);
                });
            });
        }
    }
}

}  // namespace evenflow::EVENFLOW_ISA
