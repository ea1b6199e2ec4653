// The two small matrix products inside attention, over vector registers.
//
//   score_tile    S[row][16 g + lane] = q[row] . key               lanes are keys
//   value_tile    acc[row][d] (+)= sum over keys of P[row][key] * value[key][d]      lanes are d
//
// Both walk 32-bit units (a float, or two bf16) and multiply a broadcast unit of the left side with a cache line of the
// right side, in a register tile of TILE_ROWS x TILE_VECS accumulators. Every element of a result is one chain of
// additions in the order of d (of keys), whatever the tile it falls in: that makes a row's bits its own.
#pragma once

#include "attention_schedule.h"

namespace evenflow::EVENFLOW_ISA {

struct FloatDot {
    using Element = float;
    static EVENFLOW_INLINE F32 accumulate(F32 acc, Units a, Units b) { return fma(as_f32(a), as_f32(b), acc); }
};
struct PairDot {
    using Element = bf16;
    static EVENFLOW_INLINE F32 accumulate(F32 acc, Units a, Units b) { return dot_bf16(acc, a, b); }
};

template <class Body>
EVENFLOW_INLINE void row_pieces(int rows, Body&& body) {
    if constexpr (TILE_ROWS == 4) return in_pieces<4, 3, 2, 1>(0, rows, body);
    in_pieces<2, 1>(0, rows, body);
}

template <class Body>
EVENFLOW_INLINE void vector_pieces(int vectors, Body&& body) {
    if constexpr (TILE_VECS == 4) return in_pieces<4, 2, 1>(0, vectors, body);
    if constexpr (TILE_VECS == 2) return in_pieces<2, 1>(0, vectors, body);
    in_pieces<1>(0, vectors, body);
}

template <class Element>
constexpr int PER_UNIT = 4 / int(sizeof(Element));

// q: rows of `steps` units. keys: one pointer per group of 16, to lines of 16 units.
template <class Dot, int ROWS, int GROUPS>
EVENFLOW_INLINE void score_registers(const std::uint32_t* q, const std::uint32_t* const* keys, int steps, float* out,
                                     int out_stride) {
    F32 acc[ROWS * GROUPS];
    unrolled<ROWS * GROUPS>([&](auto i) { acc[i] = splat(0.0f); });
    for (int s = 0; s < steps; ++s) {
        Units line[GROUPS];
        unrolled<GROUPS>([&](auto g) { line[g] = load_units(keys[g] + s * LANES); });
        unrolled<ROWS>([&](auto r) {
            const Units left = splat_unit(q[r * steps + s]);
            unrolled<GROUPS>([&](auto g) { acc[r * GROUPS + g] = Dot::accumulate(acc[r * GROUPS + g], left, line[g]); });
        });
    }
    unrolled<ROWS * GROUPS>([&](auto i) { store(out + i / GROUPS * out_stride + i % GROUPS * LANES, acc[i]); });
}

template <class Dot>
void score_tile(const std::uint32_t* q, int rows, const std::uint32_t* const* keys, int groups, int steps, float* out,
                int out_stride) {
    row_pieces(rows, [&](int r, auto R) {
        vector_pieces(groups, [&](int g, auto G) {
            score_registers<Dot, R.value, G.value>(q + r * steps, keys + g, steps, out + r * out_stride + g * LANES,
                                                   out_stride);
        });
    });
}

// p: rows of p_stride units, keys in order. values: one pointer per group, to 16 / PER_UNIT rows of dim units.
template <class Dot, int ROWS, int VECS>
EVENFLOW_INLINE void value_registers(const std::uint32_t* p, int p_stride, const std::uint32_t* const* values, int groups,
                                     int dim, int d, bool fresh, float* acc_rows) {
    constexpr int STEPS = GROUP / PER_UNIT<typename Dot::Element>;
    F32 acc[ROWS * VECS];
    unrolled<ROWS * VECS>([&](auto i) {
        acc[i] = fresh ? splat(0.0f) : load(acc_rows + i / VECS * dim + d + i % VECS * LANES);
    });
    for (int g = 0; g < groups; ++g) {
        for (int s = 0; s < STEPS; ++s) {
            Units line[VECS];
            unrolled<VECS>([&](auto v) { line[v] = load_units(values[g] + s * dim + d + v * LANES); });
            unrolled<ROWS>([&](auto r) {
                const Units left = splat_unit(p[r * p_stride + g * STEPS + s]);
                unrolled<VECS>([&](auto v) { acc[r * VECS + v] = Dot::accumulate(acc[r * VECS + v], left, line[v]); });
            });
        }
    }
    unrolled<ROWS * VECS>([&](auto i) { store(acc_rows + i / VECS * dim + d + i % VECS * LANES, acc[i]); });
}

template <class Dot>
void value_tile(const std::uint32_t* p, int p_stride, int rows, const std::uint32_t* const* values, int groups, int dim,
                bool fresh, float* acc) {
    row_pieces(rows, [&](int r, auto R) {
        vector_pieces(dim / LANES, [&](int v, auto V) {
            value_registers<Dot, R.value, V.value>(p + r * p_stride, p_stride, values, groups, dim, v * LANES, fresh,
                                                   acc + r * dim);
        });
    });
}

// Both products as attention.h asks for them.
template <class Dot>
struct VectorTiles {
    using Element = typename Dot::Element;
    static constexpr bool take(int) { return true; }
    static const std::uint32_t* units(const Element* x) { return reinterpret_cast<const std::uint32_t*>(x); }

    void scores(const Element* q, int rows, const std::uint32_t* const* keys, int groups, int dim, float* out) {
        score_tile<Dot>(units(q), rows, keys, groups, dim / PER_UNIT<Element>, out, SCORE_STRIDE);
    }
    void values(const Element* p, int rows, const std::uint32_t* const* values, int groups, bool, int dim, bool fresh,
                float* acc) {
        value_tile<Dot>(units(p), P_STRIDE / PER_UNIT<Element>, rows, values, groups, dim, fresh, acc);
    }
};

}  // namespace evenflow::EVENFLOW_ISA
