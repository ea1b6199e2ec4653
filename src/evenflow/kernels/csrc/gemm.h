// Products of activations [m, k] with packed weights [n, k]: what int8 and bf16 have in common, which is nearly everything.
//
// Weights are packed once, in panels of 16 outputs. A unit is 32 bits, four int8 or two bf16, and K counts units:
//
//     packed [n / 16][K][16] units       a cache line: one unit of k for 16 outputs, which one instruction eats;
//                                        16 lines: one AMX tile
//
// A Product says what a sum is (`Sum`), how a unit enters it, and what a panel's sums of one row come to (`scaled`). Panels
// that are multiplied side by side are `gap` apart: neighbours, but for gates (gated_product.h).
// Every output sums its products in the order of k, whatever the batch, so a row's bits depend on that row alone. Work is
// cut by output panels (shares.h), so that each thread streams its part of the weights once.
#pragma once

#include "activations.h"
#include "shares.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int PANEL = 16;
constexpr int PANEL_LINE = 64;                    // bytes
constexpr int VOCAB_BLOCK = 256;                  // of outputs, for which `maxima` has one number (abi.h)
constexpr int BLOCK_PANELS = VOCAB_BLOCK / PANEL;

// Both sides of a product as units.
struct Sides {
    const std::uint8_t* a;       // rows
    std::int64_t a_stride;       // bytes
    const std::uint8_t* packed;  // panels
    int steps;                   // units of k
    int m, n;

    const std::uint8_t* row(int r) const { return a + r * a_stride; }
    const std::uint8_t* panel(int p) const { return packed + std::int64_t(p) * steps * PANEL_LINE; }
};

// What follows a product of any kind: where its rows go.
struct Outputs {
    void* out;
    std::int64_t stride;
    const float* bias;
    float* maxima;
    int m, n;
    DType dtype;

    // `count` of a panel's columns exist.
    EVENFLOW_INLINE void finish(int row, int panel, F32 y) const {
        const int begin = panel * PANEL, count = n - begin;
        if (bias != nullptr) y = y + load_first(bias + begin, count);
        const std::int64_t at = stride * row + begin;
        if (dtype == DType::f32) return store_first(static_cast<float*>(out) + at, y, count);
        store_first(static_cast<bf16*>(out) + at, y, count);
    }
};

template <class Product>
EVENFLOW_INLINE void finish(const Product& product, int row, int panel, const typename Product::Element* sums) {
    product.outputs.finish(row, panel, product.scaled(row, product.columns(panel), sums));
}

// The largest of `count` values that are not NaN; -inf where there is none.
template <class T>
EVENFLOW_INLINE float largest_of(const T* values, int count) {
    F32 top = splat(-INFINITY);
    int i = 0;
    for (; i + LANES <= count; i += LANES) top = max(load(values + i), top);  // a NaN on the left gives the right
    if (i < count) top = max(keep_range(load_first(values + i, count - i), 0, count - i, splat(-INFINITY)), top);
    return reduce_max(top);
}

inline float largest_of(const void* row, DType dtype, std::int64_t begin, int count) {
    if (dtype == DType::f32) return largest_of(static_cast<const float*>(row) + begin, count);
    return largest_of(static_cast<const bf16*>(row) + begin, count);
}

// Maxima of one block of outputs, while its rows are still in the nearest caches.
inline void note_maxima(const Outputs& outputs, int block) {
    const int begin = block * VOCAB_BLOCK, left = outputs.n - begin, count = left < VOCAB_BLOCK ? left : VOCAB_BLOCK;
    const int blocks = (outputs.n + VOCAB_BLOCK - 1) / VOCAB_BLOCK;
    for (int row = 0; row < outputs.m; ++row)
        outputs.maxima[std::int64_t(row) * blocks + block] =
            largest_of(outputs.out, outputs.dtype, outputs.stride * row + begin, count);
}

}  // namespace evenflow::EVENFLOW_ISA

#include "gated_product.h"

#if defined(__AMX_INT8__)
#include "gemm_amx.h"
#else
#include "gemm_vec.h"
#endif

namespace evenflow::EVENFLOW_ISA {

template <class Product>
void multiply(const Product& product, const Outputs& outputs) {
    const int panels = (outputs.n + PANEL - 1) / PANEL;
    const int strip = outputs.maxima == nullptr ? STRIP_PANELS : BLOCK_PANELS;  // panels that one thread takes at a time
    const Shares strips((panels + strip - 1) / strip);
#pragma omp parallel
    {
        [[maybe_unused]] const GemmRegisters registers;
        strips.work([&](int i) {
            const int begin = i * strip, end = panels - begin < strip ? panels : begin + strip;
            multiply_panels(product, begin, end);
            if (outputs.maxima != nullptr) note_maxima(outputs, i);
        });
    }
}

}  // namespace evenflow::EVENFLOW_ISA
