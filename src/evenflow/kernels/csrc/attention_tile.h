// The two small matrix products inside attention, over vector registers.
//
//   score_tile    S[row][16 g + lane] = q[row] . key               lanes are keys
//   value_tile    out[row][d] = sum over keys of P[row][key] * value[key][d]      lanes are d
//
// Both walk 32-bit units (a float, two bf16 or four int8) and multiply a broadcast unit of the left side with a cache line of
// the right side, in a register tile of TILE_ROWS x TILE_VECS accumulators. Every element of a result is one chain of
// additions in the order of d (of keys), whatever the tile it falls in: that makes a row's bits its own.
#pragma once

#include "attention_schedule.h"

namespace evenflow::EVENFLOW_ISA {

struct FloatDot {
    using Query = float;
    using Weight = float;
    using Sum = float;
    static EVENFLOW_INLINE F32 score(F32 acc, Units q, Units key) { return fma(as_f32(q), as_f32(key), acc); }
    static EVENFLOW_INLINE F32 weigh(F32 acc, Units p, Units value) { return fma(as_f32(p), as_f32(value), acc); }
};
struct PairDot {
    using Query = bf16;
    using Weight = bf16;
    using Sum = float;
    static EVENFLOW_INLINE F32 score(F32 acc, Units q, Units key) { return dot_bf16(acc, q, key); }
    static EVENFLOW_INLINE F32 weigh(F32 acc, Units p, Units value) { return dot_bf16(acc, p, value); }
};
// The instruction wants one side unsigned: keys with a bias, which what a row's sum starts from takes out again.
struct QuadDot {
    using Query = std::int8_t;
    using Weight = std::uint8_t;
    using Sum = std::int32_t;
    static EVENFLOW_INLINE I32 score(I32 acc, Units q, Units key) { return dot_i8(acc, biased(key), q); }
    static EVENFLOW_INLINE I32 weigh(I32 acc, Units p, Units value) { return dot_u8(acc, p, value); }
};

EVENFLOW_INLINE F32 splat_sum(float x) { return splat(x); }
EVENFLOW_INLINE I32 splat_sum(std::int32_t x) { return splat_i32(x); }
EVENFLOW_INLINE void store_sum(float* p, F32 x) { store(p, x); }
EVENFLOW_INLINE void store_sum(std::int32_t* p, I32 x) { store_i32(p, x); }

// q . key of the bias that keys get.
template <class Dot>
EVENFLOW_INLINE typename Dot::Sum score_start([[maybe_unused]] const typename Dot::Query* q, [[maybe_unused]] int dim) {
    std::int32_t sum = 0;
    if constexpr (sizeof(*q) == 1 && ACTIVATION_BIAS != 0)
        for (int d = 0; d < dim; ++d) sum -= ACTIVATION_BIAS * q[d];
    return typename Dot::Sum(sum);
}

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

// q: rows of `steps` units. keys: one pointer per group of 16, to lines of 16 units.
template <class Dot, int ROWS, int GROUPS>
EVENFLOW_INLINE void score_registers(const std::uint32_t* q, const std::uint32_t* const* keys, int steps,
                                     const typename Dot::Sum* start, typename Dot::Sum* out, int stride) {
    decltype(splat_sum(*start)) acc[ROWS * GROUPS];
    unrolled<ROWS * GROUPS>([&](auto i) { acc[i] = splat_sum(start[i / GROUPS]); });
    for (int s = 0; s < steps; ++s) {
        Units line[GROUPS];
        unrolled<GROUPS>([&](auto g) { line[g] = load_units(keys[g] + s * LANES); });
        unrolled<ROWS>([&](auto r) {
            const Units left = splat_unit(q[r * steps + s]);
            unrolled<GROUPS>([&](auto g) { acc[r * GROUPS + g] = Dot::score(acc[r * GROUPS + g], left, line[g]); });
        });
    }
    unrolled<ROWS * GROUPS>([&](auto i) { store_sum(out + i / GROUPS * stride + i % GROUPS * LANES, acc[i]); });
}

// p: rows of P_STRIDE elements, keys in order. values: one pointer per group, to 16 / PER_UNIT rows of dim units.
template <class Dot, int ROWS, int VECS>
EVENFLOW_INLINE void value_registers(const std::uint32_t* p, const std::uint32_t* const* values, int groups, int dim, int d,
                                     typename Dot::Sum* out) {
    constexpr int UNIT = PER_UNIT<typename Dot::Weight>, STEPS = GROUP / UNIT, STRIDE = P_STRIDE / UNIT;
    decltype(splat_sum(*out)) acc[ROWS * VECS];
    unrolled<ROWS * VECS>([&](auto i) { acc[i] = splat_sum(typename Dot::Sum(0)); });
    for (int g = 0; g < groups; ++g) {
        for (int s = 0; s < STEPS; ++s) {
            Units line[VECS];
            unrolled<VECS>([&](auto v) { line[v] = load_units(values[g] + s * dim + d + v * LANES); });
            unrolled<ROWS>([&](auto r) {
                const Units left = splat_unit(p[r * STRIDE + g * STEPS + s]);
                unrolled<VECS>([&](auto v) { acc[r * VECS + v] = Dot::weigh(acc[r * VECS + v], left, line[v]); });
            });
        }
    }
    unrolled<ROWS * VECS>([&](auto i) { store_sum(out + i / VECS * dim + d + i % VECS * LANES, acc[i]); });
}

// Both products as attention.h asks for them.
template <class Dot>
struct VectorTiles {
    using Query = typename Dot::Query;
    using Weight = typename Dot::Weight;
    using Sum = typename Dot::Sum;
    explicit VectorTiles(bool) {}
    template <class T>
    static const std::uint32_t* units(const T* x) {
        return reinterpret_cast<const std::uint32_t*>(x);
    }

    // A few groups at a time, so that they stay in the nearest cache for all rows.
    void scores(const Query* q, int rows, const std::uint32_t* const* keys, int groups, int dim, Sum* out,
                int stride) {
        Sum start[2 * ROW_TILE];
        for (int r = 0; r < rows; ++r) start[r] = score_start<Dot>(q + r * dim, dim);
        const int steps = dim / PER_UNIT<Query>;
        for (int first = 0; first < groups; first += KEY_GROUPS)
            row_pieces(rows, [&](int r, auto R) {
                vector_pieces(smaller(KEY_GROUPS, groups - first), [&](int g, auto G) {
                    score_registers<Dot, R.value, G.value>(units(q) + r * steps, keys + first + g, steps, start + r,
                                                           out + r * stride + (first + g) * LANES, stride);
                });
            });
    }

    void values(const Weight* p, int rows, const std::uint32_t* const* values, int groups, int dim, Sum* out) {
        row_pieces(rows, [&](int r, auto R) {
            vector_pieces(dim / LANES, [&](int v, auto V) {
                value_registers<Dot, R.value, V.value>(units(p + r * P_STRIDE), values, groups, dim, v * LANES, out + r * dim);
            });
        });
    }
};

}  // namespace evenflow::EVENFLOW_ISA
