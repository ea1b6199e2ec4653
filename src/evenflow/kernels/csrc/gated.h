// The gated activation of an MLP: silu(gate) * up, or gelu(gate) * up, and its quantisation.
//
// Both are gate times a sigmoid: silu(g) = g sigmoid(g), and GELU in its tanh form is g sigmoid(2 sqrt(2/pi) (g + 0.044715 g^3)).
#pragma once

#include "rows.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int GELU_TANH = 1;
constexpr float LOG2_E = 1.44269504088896341f;

EVENFLOW_INLINE F32 sigmoid(F32 x) { return div(splat(1.0f), splat(1.0f) + exp2<6>(x * splat(-LOG2_E))); }

EVENFLOW_INLINE F32 silu(F32 g) { return g * sigmoid(g); }

EVENFLOW_INLINE F32 gelu_tanh(F32 g) {
    return g * sigmoid(splat(1.5957691216057308f) * fma(splat(0.044715f), g * g * g, g));
}

template <class Act>
void gated_rows(const GatedArgs& args) {
    const RowsArgs& rows = args.rows;
    const int dim = rows.dim;
    each_row(rows.num_rows, 2 * dim, [&](int row) {
        const Act* gate = row_of<Act>(rows.in, rows.in_stride, row);
        const Act* up = gate + dim;
        float* x = row_scratch(dim);
        for (int d = 0; d < dim; d += LANES) {
            const F32 g = load_first(gate + d, dim - d);
            const F32 activated = args.activation == GELU_TANH ? gelu_tanh(g) : silu(g);
            store(x + d, activated * load_first(up + d, dim - d));
        }
        finish_row<Act>(rows, row, x);
    });
}

inline void gated(const GatedArgs* args) {
    if (args->rows.dtype == DType::f32) return gated_rows<float>(*args);
    gated_rows<bf16>(*args);
}

}  // namespace evenflow::EVENFLOW_ISA
