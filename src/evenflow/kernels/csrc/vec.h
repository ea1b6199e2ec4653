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

namespace evenflow::EVENFLOW_ISA {

constexpr int LANES = 16;

// Call `body` with n as a compile-time constant in 1 .. MAX, so that register tiles of any size are one template.
template <int N>
struct Constant {
    static constexpr int value = N;
};

template <int MAX, class Body>
EVENFLOW_INLINE void with_constant(int n, Body&& body) {
    if constexpr (MAX == 1) {
        body(Constant<1>{});
    } else {
        if (n == MAX) return body(Constant<MAX>{});
        with_constant<MAX - 1>(n, body);
    }
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

// The first n lanes from memory, zero in the rest: tails of rows whose length is no multiple of 16.
template <class T>
EVENFLOW_INLINE F32 load_first(const T* from, int n) {
    if (n >= LANES) return load(from);
    T padded[LANES] = {};
    std::memcpy(padded, from, std::size_t(n) * sizeof(T));
    return load(padded);
}

template <class T>
EVENFLOW_INLINE void store_first(T* to, F32 x, int n) {
    if (n >= LANES) return store(to, x);
    T padded[LANES];
    store(padded, x);
    std::memcpy(to, padded, std::size_t(n) * sizeof(T));
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
