// vec.h on AVX2 and FMA: sixteen lanes are two registers.
#pragma once

#include <immintrin.h>

namespace evenflow::EVENFLOW_ISA {

// 2 x 2 accumulators of two registers each leave room for the operands in sixteen registers.
constexpr int TILE_ROWS = 2;
constexpr int TILE_VECS = 2;

struct F32 {
    __m256 lo, hi;
};
struct I32 {
    __m256i lo, hi;
};
struct Units {
    __m256i lo, hi;
};

EVENFLOW_INLINE F32 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
EVENFLOW_INLINE F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
EVENFLOW_INLINE __m256 widen_bf16(__m128i half) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
EVENFLOW_INLINE F32 load(const bf16* p) {
    const __m128i* from = reinterpret_cast<const __m128i*>(p);
    return {widen_bf16(_mm_loadu_si128(from)), widen_bf16(_mm_loadu_si128(from + 1))};
}
EVENFLOW_INLINE void store(float* p, F32 x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
}
EVENFLOW_INLINE __m256i round_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
EVENFLOW_INLINE void store(bf16* p, F32 x) {
    // packus works within 128-bit halves; the permutation puts the quarters back in order.
    const __m256i packed = _mm256_packus_epi32(round_bf16(x.lo), round_bf16(x.hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0b11011000));
}

EVENFLOW_INLINE void store(std::int8_t* p, F32 x) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0b11011000);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

EVENFLOW_INLINE void store_bytes(std::uint8_t* p, __m256i low, __m256i high) {
    const __m256i ordered = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0b11011000);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
// Numbers from 0 to 65,535, to the nearest whole one (even at a tie), as upper and lower bytes.
EVENFLOW_INLINE void store_bytes(std::uint8_t* upper, std::uint8_t* lower, F32 x) {
    const __m256i byte = _mm256_set1_epi32(0xff), a = _mm256_cvtps_epi32(x.lo), b = _mm256_cvtps_epi32(x.hi);
    store_bytes(upper, _mm256_srli_epi32(a, 8), _mm256_srli_epi32(b, 8));
    store_bytes(lower, _mm256_and_si256(a, byte), _mm256_and_si256(b, byte));
}

EVENFLOW_INLINE void store_bytes(std::uint8_t* upper, std::uint8_t* lower, const F32* x) {
    for (int i = 0; i < 4; ++i) store_bytes(upper + i * LANES, lower + i * LANES, x[i]);
}

EVENFLOW_INLINE F32 add(F32 a, F32 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
EVENFLOW_INLINE F32 sub(F32 a, F32 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
EVENFLOW_INLINE F32 mul(F32 a, F32 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
EVENFLOW_INLINE F32 div(F32 a, F32 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
EVENFLOW_INLINE F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
EVENFLOW_INLINE F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
EVENFLOW_INLINE F32 fma(F32 a, F32 b, F32 c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
EVENFLOW_INLINE F32 abs(F32 a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
EVENFLOW_INLINE float reduce_add(F32 a) {
    const __m256 eight = _mm256_add_ps(a.lo, a.hi);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
EVENFLOW_INLINE float reduce_max(F32 a) {
    const __m256 eight = _mm256_max_ps(a.lo, a.hi);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

EVENFLOW_INLINE F32 round_even(F32 a) {
    constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.lo, mode), _mm256_round_ps(a.hi, mode)};
}
// 2^n for whole n from -126 to 127; 0 at -127.
EVENFLOW_INLINE __m256 power_of_two(__m256 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
EVENFLOW_INLINE F32 power_of_two(F32 n) { return {power_of_two(n.lo), power_of_two(n.hi)}; }
EVENFLOW_INLINE F32 times_power_of_two(F32 a, F32 n) {
    const F32 power = power_of_two(max(min(n, splat(127.0f)), splat(-127.0f)));
    return {_mm256_mul_ps(a.lo, power.lo), _mm256_mul_ps(a.hi, power.hi)};
}

EVENFLOW_INLINE F32 keep_range(F32 x, int begin, int end, F32 fill) {
    const __m256i first = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i second = _mm256_add_epi32(first, _mm256_set1_epi32(8));
    const __m256i low = _mm256_set1_epi32(begin - 1), high = _mm256_set1_epi32(end);
    const auto inside = [&](__m256i lane) {
        return _mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(lane, low), _mm256_cmpgt_epi32(high, lane)));
    };
    return {_mm256_blendv_ps(fill.lo, x.lo, inside(first)), _mm256_blendv_ps(fill.hi, x.hi, inside(second))};
}

EVENFLOW_INLINE Units load_units(const void* p) {
    const __m256i* from = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
}
EVENFLOW_INLINE Units splat_unit(std::uint32_t x) { return {_mm256_set1_epi32(int(x)), _mm256_set1_epi32(int(x))}; }
EVENFLOW_INLINE F32 as_f32(Units u) { return {_mm256_castsi256_ps(u.lo), _mm256_castsi256_ps(u.hi)}; }

EVENFLOW_INLINE __m256 dot_bf16(__m256 acc, __m256i a, __m256i b) {
    const __m256i high = _mm256_set1_epi32(int(0xffff0000));
    const __m256 a_low = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
    const __m256 b_low = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
    const __m256 a_high = _mm256_castsi256_ps(_mm256_and_si256(a, high));
    const __m256 b_high = _mm256_castsi256_ps(_mm256_and_si256(b, high));
    return _mm256_fmadd_ps(a_high, b_high, _mm256_fmadd_ps(a_low, b_low, acc));
}
EVENFLOW_INLINE F32 dot_bf16(F32 acc, Units a, Units b) {
    return {dot_bf16(acc.lo, a.lo, b.lo), dot_bf16(acc.hi, a.hi, b.hi)};
}

EVENFLOW_INLINE I32 splat_i32(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
EVENFLOW_INLINE I32 load_i32(const std::int32_t* p) {
    const __m256i* from = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
}
EVENFLOW_INLINE void store_i32(std::int32_t* p, I32 x) {
    __m256i* to = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(to, x.lo);
    _mm256_storeu_si256(to + 1, x.hi);
}
EVENFLOW_INLINE I32 sub(I32 a, I32 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
EVENFLOW_INLINE F32 to_f32(I32 x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }

// Bytes widened to 16 bits, even and odd ones apart: exact, where the instruction on bytes would saturate.
constexpr int ACTIVATION_BIAS = 0;
EVENFLOW_INLINE __m256i dot_i8(__m256i acc, __m256i a, __m256i b) {
    const auto even = [](__m256i x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); };
    const auto odd = [](__m256i x) { return _mm256_srai_epi16(x, 8); };
    const __m256i sum = _mm256_add_epi32(acc, _mm256_madd_epi16(even(a), even(b)));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(odd(a), odd(b)));
}
EVENFLOW_INLINE I32 dot_i8(I32 acc, Units a, Units b) { return {dot_i8(acc.lo, a.lo, b.lo), dot_i8(acc.hi, a.hi, b.hi)}; }
EVENFLOW_INLINE Units biased(Units a) { return a; }
// The same with unsigned bytes in a.
EVENFLOW_INLINE __m256i dot_u8(__m256i acc, __m256i a, __m256i b) {
    const __m256i even_a = _mm256_and_si256(a, _mm256_set1_epi16(0xff)), odd_a = _mm256_srli_epi16(a, 8);
    const __m256i even_b = _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8), odd_b = _mm256_srai_epi16(b, 8);
    return _mm256_add_epi32(_mm256_add_epi32(acc, _mm256_madd_epi16(even_a, even_b)), _mm256_madd_epi16(odd_a, odd_b));
}
EVENFLOW_INLINE I32 dot_u8(I32 acc, Units a, Units b) { return {dot_u8(acc.lo, a.lo, b.lo), dot_u8(acc.hi, a.hi, b.hi)}; }

struct F64 {
    __m256d quarter[4];
};
EVENFLOW_INLINE F64 splat_f64(double x) {
    const __m256d all = _mm256_set1_pd(x);
    return {{all, all, all, all}};
}
EVENFLOW_INLINE F64 widen(F32 a) {
    return {{_mm256_cvtps_pd(_mm256_castps256_ps128(a.lo)), _mm256_cvtps_pd(_mm256_extractf128_ps(a.lo, 1)),
             _mm256_cvtps_pd(_mm256_castps256_ps128(a.hi)), _mm256_cvtps_pd(_mm256_extractf128_ps(a.hi, 1))}};
}
EVENFLOW_INLINE F64 add(F64 a, F64 b) {
    unrolled<4>([&](int i) { a.quarter[i] = _mm256_add_pd(a.quarter[i], b.quarter[i]); });
    return a;
}
EVENFLOW_INLINE F64 sub(F64 a, F64 b) {
    unrolled<4>([&](int i) { a.quarter[i] = _mm256_sub_pd(a.quarter[i], b.quarter[i]); });
    return a;
}
EVENFLOW_INLINE double reduce_add(F64 a) {
    const __m256d four = _mm256_add_pd(_mm256_add_pd(a.quarter[0], a.quarter[1]), _mm256_add_pd(a.quarter[2], a.quarter[3]));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

}  // namespace evenflow::EVENFLOW_ISA
