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

// What one row of a gate's panel and of its partner's come to.
template <class Product>
EVENFLOW_INLINE F32 gated_row(const Product& product, int row, int panel, F32 gate_columns, F32 up_columns,
                              const typename Product::Element* gate_sums, const typename Product::Element* up_sums) {
    F32 gate = product.scaled(row, gate_columns, gate_sums), up = product.scaled(row, up_columns, up_sums);
    if (const float* bias = product.outputs.bias; bias != nullptr) {
        gate = gate + load(bias + panel * PANEL);
        up = up + load(bias + (panel + product.gap) * PANEL);
    }
    gate = rounded_to_bf16(gate), up = rounded_to_bf16(up);
    return (product.gelu ? gelu_tanh(gate) : silu(gate)) * up;
}

}  // namespace evenflow::EVENFLOW_ISA
