// One of many by a race: everyone runs for an exponentially distributed time divided by its weight, and the first wins.
//
// Times are a hash of the request's seed, the place in its output and the contender's own number. executors/torch/draw.py has
// the theory, and the same arithmetic in numpy: integers, and doubles rounded once per operation.
#pragma once

#include "buffer.h"

namespace evenflow::EVENFLOW_ISA {

constexpr std::uint64_t GOLDEN = 0x9E3779B97F4A7C15u;
constexpr std::uint64_t BLOCK_STEP = 0xD1B54A32D192ED03u;  // blocks and tokens run on tracks of their own
constexpr std::uint64_t TOKEN_STEP = 0x8CB92BA72F3D8DD7u;

EVENFLOW_INLINE std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

inline std::uint64_t track_of(std::uint64_t seed, std::int64_t place) {
    return mix(mix(seed + GOLDEN) + std::uint64_t(place + 1) * GOLDEN);
}

EVENFLOW_INLINE double double_of(std::uint64_t bits) {
    double out;
    std::memcpy(&out, &bits, 8);
    return out;
}

// The natural logarithm of a normal x > 0, within some 1e-16: x = 2^k z with z in [sqrt 1/2, sqrt 2), and
// log z = 2 atanh(s), s = (z - 1) / (z + 1), by its series.
EVENFLOW_INLINE double natural_log(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, 8);
    const std::int64_t k = std::int64_t(bits - 0x3FE6A09E667F3BCDu) >> 52;
    const double z = double_of(bits - (std::uint64_t(k) << 52)), power = double(std::int32_t(k));
    const double s = (z - 1.0) / (z + 1.0), q = s * s, twice = s + s;
    double p = 1.0 / 21.0;
    p = p * q + 1.0 / 19.0;
    p = p * q + 1.0 / 17.0;
    p = p * q + 1.0 / 15.0;
    p = p * q + 1.0 / 13.0;
    p = p * q + 1.0 / 11.0;
    p = p * q + 1.0 / 9.0;
    p = p * q + 1.0 / 7.0;
    p = p * q + 1.0 / 5.0;
    p = p * q + 1.0 / 3.0;
    const double rest = twice * q * p + power * 1.90821492927058770002e-10;
    return power * 6.93147180369123816490e-01 + (twice + rest);  // the first product is exact
}

// Exponentially distributed, mean 1, from 64 random bits: -log((the upper 53 + 1/2) / 2^53).
EVENFLOW_INLINE double time_of(std::uint64_t bits) {
    // In two halves, which every vector unit can convert; their sum is exact.
    const double high = double(std::int32_t(bits >> 37)), low = double(std::int32_t((bits >> 11) & 0x3FFFFFF));
    return -natural_log(((high * 67108864.0 + low) + 0.5) * 0x1p-53);
}

// Which of n contenders arrives first, the lowest among equals; one without weight never does.
template <class Id, class Weight>
int winner(std::uint64_t track, std::uint64_t step, int n, const Id& id, const Weight& weight) {
    constexpr int HEAT = 256;
    alignas(64) double arrivals[HEAT];
    double best = INFINITY;
    int first = 0;
    for (int begin = 0; begin < n; begin += HEAT) {
        const int count = n - begin < HEAT ? n - begin : HEAT;
#pragma omp simd
        for (int i = 0; i < count; ++i)
            arrivals[i] = time_of(mix(track + std::uint64_t(id(begin + i) + 1) * step)) / double(weight(begin + i));
        for (int i = 0; i < count; ++i)
            if (arrivals[i] < best) best = arrivals[i], first = begin + i;
    }
    return first;
}

}  // namespace evenflow::EVENFLOW_ISA
