// From logits to weights, w = e^((logit - peak) / temperature), and what weights weigh together.
//
// Who draws the same token everywhere needs the same bits everywhere, so both are made of single roundings only: no fused
// multiply-add, no library's exponential, and sums that are exact. A weight's mass is the weight rounded to a multiple of
// 2^-34, in double; the masses of 2^19 tokens are below 2^19, so that every partial sum is a double without rounding, in
// whatever order. executors/torch/weights.py is the same arithmetic in numpy.
#pragma once

#include "buffer.h"

namespace evenflow::EVENFLOW_ISA {

// e^x for x <= 0, within 2 units in the last place; exactly 1 at 0, exactly 0 below -88, for -inf and for NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; a minimax polynomial with the constant term held at 1.
EVENFLOW_INLINE F32 weight_of(F32 x) {
    x = max(x, splat(-88.0f));
    const F32 n = round_even(x * splat(1.44269504f));
    const F32 r = (x - n * splat(0.693359375f)) - n * splat(-2.12194440e-4f);  // the first product is exact
    F32 p = splat(0.0013843652559444308f);
    p = p * r + splat(0.008374163880944252f);
    p = p * r + splat(0.04166800156235695f);
    p = p * r + splat(0.16666431725025177f);
    p = p * r + splat(0.4999999403953552f);
    p = p * r + splat(1.0f);
    p = p * r + splat(1.0f);
    return p * power_of_two(n);
}

constexpr double MASS_ROUNDING = 1.5 * (1 << 18);  // adding and taking it away leaves a multiple of 2^(18 - 52)

inline double mass_of(float weight) { return (double(weight) + MASS_ROUNDING) - MASS_ROUNDING; }

// Sixteen running sums of masses.
struct MassSum {
    F64 lanes = splat_f64(0.0);
    EVENFLOW_INLINE void add_weights(F32 weights) {
        const F64 rounding = splat_f64(MASS_ROUNDING);
        lanes = add(lanes, sub(add(widen(weights), rounding), rounding));
    }
    EVENFLOW_INLINE double total() const { return reduce_add(lanes); }
};

struct Softness {
    float peak, inverse_temperature;
};

struct Weighed {
    double mass;
    float heaviest;
};

// Weights of `count` logits to `out`, which has room for a multiple of 16 (zeros beyond count).
template <class T>
Weighed weigh(const T* logits, int count, Softness by, float* out) {
    MassSum mass;
    F32 heaviest = splat(0.0f);
    const auto lanes = [&](int at, F32 x) {
        const F32 w = weight_of((x - splat(by.peak)) * splat(by.inverse_temperature));
        store(out + at, w);
        mass.add_weights(w);
        heaviest = max(w, heaviest);
    };
    int at = 0;
    for (; at + LANES <= count; at += LANES) lanes(at, load(logits + at));
    const int left = count - at;
    if (left > 0) lanes(at, keep_range(load_first(logits + at, left), 0, left, splat(-INFINITY)));
    return {mass.total(), reduce_max(heaviest)};
}

}  // namespace evenflow::EVENFLOW_ISA
