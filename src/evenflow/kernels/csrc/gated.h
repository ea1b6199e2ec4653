// The gated activation of an MLP: silu(gate) * up, or gelu(gate) * up, and its quantisation.
//
// Both are gate times a sigmoid: silu(g) = g sigmoid(g), and GELU in its tanh form is g sigmoid(2 sqrt(2/pi) (g + 0.044715 g^3)).
#pragma once

#include "rows.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int GELU_TANH = 1;
constexpr int GATE_GELU = 1 + GELU_TANH;  // of a product's record, where 0 is no gate
constexpr float LOG2_E = 1.44269504088896341f;

EVENFLOW_INLINE F32 sigmoid(F32 x) { return div(splat(1.0f), splat(1.0f) + exp2<6>(x * splat(-LOG2_E))); }

EVENFLOW_INLINE F32 silu(F32 g) { return g * sigmoid(g); }

EVENFLOW_INLINE F32 gelu_tanh(F32 g) {
    return g * sigmoid(splat(1.5957691216057308f) * fma(splat(0.044715f), g * g * g, g));
}

inline void gated(const GatedArgs* args) {
    const RowsArgs& rows = args->rows;
    const int dim = rows.dim, padded = (dim + LANES - 1) / LANES * LANES;
    const bool gelu = args->activation == GELU_TANH;
    each_row(rows.num_rows, 2 * dim, [&](int row) {
        float* x = row_scratch(2 * padded);
        float* up = x + padded;
        read_row(rows.in, rows.in_stride * row, rows.dtype, dim, x);
        read_row(rows.in, rows.in_stride * row + dim, rows.dtype, dim, up);
        for (int d = 0; d < dim; d += LANES) {
            const F32 gate = load(x + d);
            store(x + d, (gelu ? gelu_tanh(gate) : silu(gate)) * load(up + d));
        }
        finish_row(rows, row, x);
    });
}

}  // namespace evenflow::EVENFLOW_ISA
