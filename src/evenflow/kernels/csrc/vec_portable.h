// vec.h in plain C++: arrays of sixteen that the compiler vectorises for whatever it is given.
#pragma once

#include <cmath>

namespace evenflow::EVENFLOW_ISA {

constexpr int TILE_ROWS = 2;
constexpr int TILE_VECS = 1;

struct F32 {
    float v[LANES];
};
struct I32 {
    std::int32_t v[LANES];
};
struct Units {
    std::uint32_t v[LANES];
};

template <class Body>
EVENFLOW_INLINE F32 each_lane(Body&& body) {
    F32 out;
    for (int i = 0; i < LANES; ++i) out.v[i] = body(i);
    return out;
}

EVENFLOW_INLINE F32 splat(float x) {
    return each_lane([&](int) { return x; });
}
EVENFLOW_INLINE F32 load(const float* p) {
    return each_lane([&](int i) { return p[i]; });
}
EVENFLOW_INLINE F32 load(const bf16* p) {
    return each_lane([&](int i) { return to_float(p[i]); });
}
EVENFLOW_INLINE void store(float* p, F32 x) { std::memcpy(p, x.v, sizeof x.v); }
EVENFLOW_INLINE void store(bf16* p, F32 x) {
    for (int i = 0; i < LANES; ++i) p[i] = to_bf16(x.v[i]);
}

EVENFLOW_INLINE float nearest_even(float x) {
    // Adding and taking away 1.5 * 2^23 leaves the nearest whole number, where there are fractions at all.
    const float magic = 12582912.0f;
    return std::fabs(x) < 4194304.0f ? (x + magic) - magic : x;
}
EVENFLOW_INLINE void store(std::int8_t* p, F32 x) {
    for (int i = 0; i < LANES; ++i) {
        const float n = nearest_even(x.v[i]);
        p[i] = std::int8_t(n > 127.0f ? 127.0f : n < -128.0f ? -128.0f : n);
    }
}

// Numbers from 0 to 65,535, to the nearest whole one (even at a tie), as upper and lower bytes.
EVENFLOW_INLINE void store_bytes(std::uint8_t* upper, std::uint8_t* lower, F32 x) {
    for (int i = 0; i < LANES; ++i) {
        const unsigned n = unsigned(nearest_even(x.v[i]));
        upper[i] = std::uint8_t(n >> 8);
        lower[i] = std::uint8_t(n);
    }
}

EVENFLOW_INLINE void store_bytes(std::uint8_t* upper, std::uint8_t* lower, const F32* x) {
    for (int i = 0; i < 4; ++i) store_bytes(upper + i * LANES, lower + i * LANES, x[i]);
}

EVENFLOW_INLINE F32 add(F32 a, F32 b) {
    return each_lane([&](int i) { return a.v[i] + b.v[i]; });
}
EVENFLOW_INLINE F32 sub(F32 a, F32 b) {
    return each_lane([&](int i) { return a.v[i] - b.v[i]; });
}
EVENFLOW_INLINE F32 mul(F32 a, F32 b) {
    return each_lane([&](int i) { return a.v[i] * b.v[i]; });
}
EVENFLOW_INLINE F32 div(F32 a, F32 b) {
    return each_lane([&](int i) { return a.v[i] / b.v[i]; });
}
EVENFLOW_INLINE F32 max(F32 a, F32 b) {
    return each_lane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
EVENFLOW_INLINE F32 min(F32 a, F32 b) {
    return each_lane([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
// Not fused: std::fma is a slow library call on processors without the instruction.
EVENFLOW_INLINE F32 fma(F32 a, F32 b, F32 c) {
    return each_lane([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
EVENFLOW_INLINE F32 abs(F32 a) {
    return each_lane([&](int i) { return std::fabs(a.v[i]); });
}
// Pairwise, as the vector units do it.
template <class Combine>
EVENFLOW_INLINE float reduce(F32 a, Combine&& combine) {
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) a.v[i] = combine(a.v[i], a.v[i + width]);
    return a.v[0];
}
EVENFLOW_INLINE float reduce_add(F32 a) {
    return reduce(a, [](float x, float y) { return x + y; });
}
EVENFLOW_INLINE float reduce_max(F32 a) {
    return reduce(a, [](float x, float y) { return x > y ? x : y; });
}

EVENFLOW_INLINE F32 round_even(F32 a) {
    return each_lane([&](int i) { return nearest_even(a.v[i]); });
}
// 2^n for whole n from -126 to 127; 0 at -127.
EVENFLOW_INLINE F32 power_of_two(F32 n) {
    return each_lane([&](int i) {
        const std::uint32_t bits = std::uint32_t(int(n.v[i]) + 127) << 23;
        float power;
        std::memcpy(&power, &bits, 4);
        return power;
    });
}
EVENFLOW_INLINE F32 times_power_of_two(F32 a, F32 n) {
    return mul(a, power_of_two(max(min(n, splat(127.0f)), splat(-127.0f))));
}

EVENFLOW_INLINE F32 keep_range(F32 x, int begin, int end, F32 fill) {
    return each_lane([&](int i) { return i >= begin && i < end ? x.v[i] : fill.v[i]; });
}

EVENFLOW_INLINE Units load_units(const void* p) {
    Units out;
    std::memcpy(out.v, p, sizeof out.v);
    return out;
}
EVENFLOW_INLINE Units splat_unit(std::uint32_t x) {
    Units out;
    for (int i = 0; i < LANES; ++i) out.v[i] = x;
    return out;
}
EVENFLOW_INLINE F32 as_f32(Units u) {
    F32 out;
    std::memcpy(out.v, u.v, sizeof out.v);
    return out;
}

EVENFLOW_INLINE float half_of(std::uint32_t unit, bool high) {
    const std::uint32_t bits = high ? unit & 0xffff0000u : unit << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}
EVENFLOW_INLINE F32 dot_bf16(F32 acc, Units a, Units b) {
    return each_lane([&](int i) {
        const float low = half_of(a.v[i], false) * half_of(b.v[i], false);
        return (acc.v[i] + low) + half_of(a.v[i], true) * half_of(b.v[i], true);
    });
}

EVENFLOW_INLINE I32 splat_i32(std::int32_t x) {
    I32 out;
    for (int i = 0; i < LANES; ++i) out.v[i] = x;
    return out;
}
EVENFLOW_INLINE I32 load_i32(const std::int32_t* p) {
    I32 out;
    std::memcpy(out.v, p, sizeof out.v);
    return out;
}
EVENFLOW_INLINE void store_i32(std::int32_t* p, I32 x) { std::memcpy(p, x.v, sizeof x.v); }
EVENFLOW_INLINE I32 sub(I32 a, I32 b) {
    for (int i = 0; i < LANES; ++i) a.v[i] -= b.v[i];
    return a;
}
EVENFLOW_INLINE F32 to_f32(I32 x) {
    return each_lane([&](int i) { return float(x.v[i]); });
}

// acc + the dot product of four bytes of each unit; `A` is the type of a's.
template <class A>
EVENFLOW_INLINE I32 dot_bytes(I32 acc, Units a, Units b) {
    for (int i = 0; i < LANES; ++i)
        for (int shift = 0; shift < 32; shift += 8) acc.v[i] += int(A(a.v[i] >> shift)) * int(std::int8_t(b.v[i] >> shift));
    return acc;
}
constexpr int ACTIVATION_BIAS = 0;
EVENFLOW_INLINE I32 dot_i8(I32 acc, Units a, Units b) { return dot_bytes<std::int8_t>(acc, a, b); }
EVENFLOW_INLINE Units biased(Units a) { return a; }
EVENFLOW_INLINE I32 dot_u8(I32 acc, Units a, Units b) { return dot_bytes<std::uint8_t>(acc, a, b); }

struct F64 {
    double v[LANES];
};
EVENFLOW_INLINE F64 splat_f64(double x) {
    F64 out;
    for (int i = 0; i < LANES; ++i) out.v[i] = x;
    return out;
}
EVENFLOW_INLINE F64 widen(F32 a) {
    F64 out;
    for (int i = 0; i < LANES; ++i) out.v[i] = double(a.v[i]);
    return out;
}
EVENFLOW_INLINE F64 add(F64 a, F64 b) {
    for (int i = 0; i < LANES; ++i) a.v[i] += b.v[i];
    return a;
}
EVENFLOW_INLINE F64 sub(F64 a, F64 b) {
    for (int i = 0; i < LANES; ++i) a.v[i] -= b.v[i];
    return a;
}
EVENFLOW_INLINE double reduce_add(F64 a) {
    double sum = 0.0;
    for (int i = 0; i < LANES; ++i) sum += a.v[i];
    return sum;
}

}  // namespace evenflow::EVENFLOW_ISA
