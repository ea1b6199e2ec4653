// Sixteen lanes, whatever the processor: every kernel is written once over these few operations.
//
//   F32    16 floats                    one zmm, two ymm, or an array that the compiler vectorises
//   Units  16 words of 32 bits          as memory gives them: a float, two bf16 or four int8 each
//
// Sixteen 32-bit lanes are a cache line, so packed layouts (kv_pool.h) are the same for every instruction set.
// A translation unit defines EVENFLOW_ISA (its namespace, so that no two units share an inline function) and includes
// this file, compiled with that instruction set's flags. Contraction is off (-ffp-contract=off): fma is explicit, and so
// one template gives one result however it is instantiated.
#pragma once

#include <cstdint>
#include <cstring>

#include "bfloat16.h"

#define EVENFLOW_INLINE inline __attribute__((always_inline))
#define EVENFLOW_APART __attribute__((noinline))

namespace evenflow::EVENFLOW_ISA {

constexpr int LANES = 16;

template <int N>
struct Constant {
    static constexpr int value = N;
    constexpr operator int() const { return N; }
};

// A loop over a register tile: unrolled early, so that every index is a constant and an array of accumulators is a set of
// registers. (Without the pragma GCC 12 stores each accumulator to the stack in each step.)
template <int N, class Body>
EVENFLOW_INLINE void unrolled(Body&& body) {
#pragma GCC unroll 64
    for (int i = 0; i < N; ++i) body(i);
}

// Cut 0 .. n - 1 into pieces of the given sizes, the largest first, and call body(begin, size) for each, the size a constant:
// every register tile is one template.
template <int SIZE, int... SMALLER, class Body>
EVENFLOW_INLINE void in_pieces(int begin, int n, Body&& body) {
    for (; n - begin >= SIZE; begin += SIZE) body(begin, Constant<SIZE>{});
    if constexpr (sizeof...(SMALLER) > 0) in_pieces<SMALLER...>(begin, n, body);
}

}  // namespace evenflow::EVENFLOW_ISA

#if defined(__AVX512F__)
#include "vec_avx512.h"
#elif defined(__AVX2__)
#include "vec_avx2.h"
#else
#include "vec_portable.h"
#endif

namespace evenflow::EVENFLOW_ISA {

EVENFLOW_INLINE F32 operator+(F32 a, F32 b) { return add(a, b); }
EVENFLOW_INLINE F32 operator-(F32 a, F32 b) { return sub(a, b); }
EVENFLOW_INLINE F32 operator*(F32 a, F32 b) { return mul(a, b); }

// The first n lanes from memory, zero in the rest: tails of rows whose length is no multiple of 16. Tails are rare, and
// inlined in every loop they are most of the code.
template <class T>
EVENFLOW_APART F32 load_tail(const T* from, int n) {
    T padded[LANES] = {};
    std::memcpy(padded, from, std::size_t(n) * sizeof(T));
    return load(padded);
}

template <class T>
EVENFLOW_APART void store_tail(T* to, F32 x, int n) {
    T padded[LANES];
    store(padded, x);
    std::memcpy(to, padded, std::size_t(n) * sizeof(T));
}

template <class T>
EVENFLOW_INLINE F32 load_first(const T* from, int n) {
    return n >= LANES ? load(from) : load_tail(from, n);
}

template <class T>
EVENFLOW_INLINE void store_first(T* to, F32 x, int n) {
    if (n >= LANES) return store(to, x);
    store_tail(to, x, n);
}

// 2^x to DEGREE's accuracy (4: 3e-6, 6: 2e-9 before rounding); exactly 1 at 0 and exactly 0 far below.
// x = n + f with f in [-1/2, 1/2]; minimax polynomials with the constant term held at 1.
template <int DEGREE>
EVENFLOW_INLINE F32 exp2(F32 x) {
    static_assert(DEGREE == 4 || DEGREE == 6);
    const F32 n = round_even(x);
    const F32 f = x - n;
    F32 p;
    if constexpr (DEGREE == 4) {
        p = fma(splat(0.009582852944731712f), f, splat(0.055906426161527634f));
        p = fma(p, f, splat(0.24024099111557007f));
        p = fma(p, f, splat(0.6931241750717163f));
    } else {
        p = fma(splat(0.00015353361959569156f), f, splat(0.0013398875016719103f));
        p = fma(p, f, splat(0.00961843691766262f));
        p = fma(p, f, splat(0.055503323674201965f));
        p = fma(p, f, splat(0.24022647738456726f));
        p = fma(p, f, splat(0.6931471824645996f));
    }
    return times_power_of_two(fma(p, f, splat(1.0f)), n);
}

}  // namespace evenflow::EVENFLOW_ISA
