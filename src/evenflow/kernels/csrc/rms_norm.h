// Root-mean-square norm of each row, with the residual addition before it and the quantisation after it.
//
//     h = in + addend                    rounded to the activations' type and written back: it is the residual stream
//     out = h / sqrt(mean(h^2) + eps) * weight
#pragma once

#include <cmath>

#include "rows.h"

namespace evenflow::EVENFLOW_ISA {

template <class Act>
EVENFLOW_INLINE void add_row(Act* row, const Act* addend, int dim) {
    for (int d = 0; d < dim; d += LANES)
        store_first(row + d, load_first(row + d, dim - d) + load_first(addend + d, dim - d), dim - d);
}

template <class Act>
void rms_norm_rows(const NormArgs& args) {
    const RowsArgs& rows = args.rows;
    const int dim = rows.dim;
    each_row(rows.num_rows, dim, [&](int row) {
        const Act* in = row_of<Act>(rows.in, rows.in_stride, row);
        if (args.addend != nullptr)
            add_row(const_cast<Act*>(in), row_of<Act>(args.addend, args.addend_stride, row), dim);
        float* x = row_scratch(dim);
        F32 squares = splat(0.0f);
        for (int d = 0; d < dim; d += LANES) {
            const F32 h = load_first(in + d, dim - d);
            squares = fma(h, h, squares);
            store(x + d, h);
        }
        const F32 factor = splat(1.0f / std::sqrt(reduce_add(squares) / float(dim) + args.eps));
        for (int d = 0; d < dim; d += LANES) store(x + d, load(x + d) * factor * load_first(args.weight + d, dim - d));
        finish_row<Act>(rows, row, x);
    });
}

inline void rms_norm(const NormArgs* args) {
    if (args->rows.dtype == DType::f32) return rms_norm_rows<float>(*args);
    rms_norm_rows<bf16>(*args);
}

}  // namespace evenflow::EVENFLOW_ISA
