// vec.h on AVX-512 (F, BW, DQ, VL, VNNI); dot products of bf16 pairs in one instruction where the unit has AVX512_BF16.
#pragma once

#include <immintrin.h>

namespace evenflow::EVENFLOW_ISA {

// Register tile of the micro-kernels: TILE_ROWS x TILE_VECS accumulators of 32 registers.
constexpr int TILE_ROWS = 4;
constexpr int TILE_VECS = 4;

struct F32 {
    __m512 v;
};
struct I32 {
    __m512i v;
};
struct Units {
    __m512i v;
};

EVENFLOW_INLINE F32 splat(float x) { return {_mm512_set1_ps(x)}; }
EVENFLOW_INLINE F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
EVENFLOW_INLINE F32 load(const bf16* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
EVENFLOW_INLINE void store(float* p, F32 x) { _mm512_storeu_ps(p, x.v); }
EVENFLOW_INLINE void store(bf16* p, F32 x) {
#if defined(__AVX512BF16__)
    const __m256i half = (__m256i)_mm512_cvtneps_pbh(x.v);
#else
    const __m512i bits = _mm512_castps_si512(x.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
#endif
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half);
}

// Two vectors side by side, in one store.
EVENFLOW_INLINE void store_pair(float* p, F32 first, F32 second) { store(p, first), store(p + 16, second); }
EVENFLOW_INLINE void store_pair(bf16* p, F32 first, F32 second) {
#if defined(__AVX512BF16__)
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(second.v, first.v));
#else
    store(p, first), store(p + 16, second);
#endif
}

// To int8, nearest even, saturated.
EVENFLOW_INLINE void store(std::int8_t* p, F32 x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x.v)));
}

// Numbers from 0 to 65,535, to the nearest whole one (even at a tie), as upper and lower bytes.
EVENFLOW_INLINE void store_bytes(std::uint8_t* upper, std::uint8_t* lower, F32 x) {
    const __m512i n = _mm512_cvtps_epi32(x.v);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(upper), _mm512_cvtepi32_epi8(_mm512_srli_epi32(n, 8)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lower), _mm512_cvtepi32_epi8(n));
}

// The same for sixty-four: packing works within 128-bit quarters, and one permutation puts them back in order.
EVENFLOW_INLINE void store_bytes(std::uint8_t* upper, std::uint8_t* lower, const F32* x) {
    const __m512i first = _mm512_packus_epi32(_mm512_cvtps_epi32(x[0].v), _mm512_cvtps_epi32(x[1].v));
    const __m512i second = _mm512_packus_epi32(_mm512_cvtps_epi32(x[2].v), _mm512_cvtps_epi32(x[3].v));
    const __m512i low = _mm512_set1_epi16(0xff);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i up = _mm512_packus_epi16(_mm512_srli_epi16(first, 8), _mm512_srli_epi16(second, 8));
    const __m512i down = _mm512_packus_epi16(_mm512_and_si512(first, low), _mm512_and_si512(second, low));
    _mm512_storeu_si512(upper, _mm512_permutexvar_epi32(order, up));
    _mm512_storeu_si512(lower, _mm512_permutexvar_epi32(order, down));
}

EVENFLOW_INLINE F32 add(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
EVENFLOW_INLINE F32 sub(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
EVENFLOW_INLINE F32 mul(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
EVENFLOW_INLINE F32 div(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
EVENFLOW_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
EVENFLOW_INLINE F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
EVENFLOW_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
EVENFLOW_INLINE F32 abs(F32 a) { return {_mm512_abs_ps(a.v)}; }
EVENFLOW_INLINE float reduce_add(F32 a) { return _mm512_reduce_add_ps(a.v); }
EVENFLOW_INLINE float reduce_max(F32 a) { return _mm512_reduce_max_ps(a.v); }

EVENFLOW_INLINE F32 round_even(F32 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// 2^n for whole n from -126 to 127; 0 at -127.
EVENFLOW_INLINE F32 power_of_two(F32 n) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23))};
}
// a * 2^n for whole n; 0 where n is far below the exponent range.
EVENFLOW_INLINE F32 times_power_of_two(F32 a, F32 n) { return {_mm512_scalef_ps(a.v, n.v)}; }

// Lanes begin .. end - 1 of x, `fill` elsewhere.
EVENFLOW_INLINE F32 keep_range(F32 x, int begin, int end, F32 fill) {
    const std::uint32_t below_end = end >= LANES ? 0xffffu : end <= 0 ? 0u : (1u << end) - 1;
    const std::uint32_t below_begin = begin >= LANES ? 0xffffu : begin <= 0 ? 0u : (1u << begin) - 1;
    return {_mm512_mask_mov_ps(fill.v, __mmask16(below_end & ~below_begin), x.v)};
}

EVENFLOW_INLINE Units load_units(const void* p) { return {_mm512_loadu_si512(p)}; }
EVENFLOW_INLINE Units splat_unit(std::uint32_t x) { return {_mm512_set1_epi32(int(x))}; }
EVENFLOW_INLINE F32 as_f32(Units u) { return {_mm512_castsi512_ps(u.v)}; }

// acc + a.low * b.low + a.high * b.high, each unit holding two bf16.
EVENFLOW_INLINE F32 dot_bf16(F32 acc, Units a, Units b) {
#if defined(__AVX512BF16__)
    return {_mm512_dpbf16_ps(acc.v, (__m512bh)a.v, (__m512bh)b.v)};
#else
    const __m512i high = _mm512_set1_epi32(int(0xffff0000));
    const __m512 a_low = _mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16));
    const __m512 b_low = _mm512_castsi512_ps(_mm512_slli_epi32(b.v, 16));
    const __m512 a_high = _mm512_castsi512_ps(_mm512_and_si512(a.v, high));
    const __m512 b_high = _mm512_castsi512_ps(_mm512_and_si512(b.v, high));
    return {_mm512_fmadd_ps(a_high, b_high, _mm512_fmadd_ps(a_low, b_low, acc.v))};
#endif
}

EVENFLOW_INLINE I32 splat_i32(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
EVENFLOW_INLINE I32 load_i32(const std::int32_t* p) { return {_mm512_loadu_si512(p)}; }
EVENFLOW_INLINE void store_i32(std::int32_t* p, I32 x) { _mm512_storeu_si512(p, x.v); }
EVENFLOW_INLINE I32 sub(I32 a, I32 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
EVENFLOW_INLINE F32 to_f32(I32 x) { return {_mm512_cvtepi32_ps(x.v)}; }

// acc + the dot product of four bytes of each unit, exact. The instruction wants a's unsigned: int8 plus ACTIVATION_BIAS.
constexpr int ACTIVATION_BIAS = 128;
EVENFLOW_INLINE I32 dot_i8(I32 acc, Units a, Units b) { return {_mm512_dpbusd_epi32(acc.v, a.v, b.v)}; }
EVENFLOW_INLINE Units biased(Units a) { return {_mm512_xor_si512(a.v, _mm512_set1_epi8(-128))}; }
// The same with unsigned bytes in a.
EVENFLOW_INLINE I32 dot_u8(I32 acc, Units a, Units b) { return {_mm512_dpbusd_epi32(acc.v, a.v, b.v)}; }

struct F64 {
    __m512d lo, hi;
};
EVENFLOW_INLINE F64 splat_f64(double x) { return {_mm512_set1_pd(x), _mm512_set1_pd(x)}; }
EVENFLOW_INLINE F64 widen(F32 a) {
    return {_mm512_cvtps_pd(_mm512_castps512_ps256(a.v)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1))};
}
EVENFLOW_INLINE F64 add(F64 a, F64 b) { return {_mm512_add_pd(a.lo, b.lo), _mm512_add_pd(a.hi, b.hi)}; }
EVENFLOW_INLINE F64 sub(F64 a, F64 b) { return {_mm512_sub_pd(a.lo, b.lo), _mm512_sub_pd(a.hi, b.hi)}; }
EVENFLOW_INLINE double reduce_add(F64 a) { return _mm512_reduce_add_pd(_mm512_add_pd(a.lo, a.hi)); }

}  // namespace evenflow::EVENFLOW_ISA
