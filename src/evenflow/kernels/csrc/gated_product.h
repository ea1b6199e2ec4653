// A product whose outputs come in pairs, a gate and what it gates: out[i] = activation(y[i]) * y[i + n]. Of the two panels that
// are multiplied side by side one is of each, so 32 sums become 16 outputs before they are written anywhere.
//
// Gates and what they gate are rounded to bf16 first, as they are where they go through memory.
#pragma once

#include "gated.h"

namespace evenflow::EVENFLOW_ISA {

template <class Plain>
struct Gated : Plain {
    static constexpr bool GATED = true;
    bool gelu;
};

EVENFLOW_INLINE F32 rounded_to_bf16(F32 x) {
    bf16 rounded[LANES];
    store(rounded, x);
    return load(rounded);
}

// What rows of a gate's panel and of its partner's come to; the sums of a row are `stride` after those of the one before.
template <class Product>
EVENFLOW_INLINE void finish_gates(const Product& product, int first, int rows, int panel,
                                  const typename Product::Element* gates, const typename Product::Element* ups, int stride) {
    const Outputs& outputs = product.outputs;
    const int partner = panel + product.gap;
    const F32 gate_columns = product.columns(panel), up_columns = product.columns(partner);
    bf16* out = static_cast<bf16*>(outputs.out) + outputs.stride * first + panel * PANEL;
    for (int r = 0; r < rows; ++r, out += outputs.stride, gates += stride, ups += stride) {
        F32 gate = product.scaled(first + r, gate_columns, gates), up = product.scaled(first + r, up_columns, ups);
        if (outputs.bias != nullptr) {
            gate = gate + load(outputs.bias + panel * PANEL);
            up = up + load(outputs.bias + partner * PANEL);
        }
        gate = rounded_to_bf16(gate), up = rounded_to_bf16(up);
        store(out, (product.gelu ? gelu_tanh(gate) : silu(gate)) * up);
    }
}

}  // namespace evenflow::EVENFLOW_ISA
