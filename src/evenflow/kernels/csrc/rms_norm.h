// Root-mean-square norm of each row, with the residual addition before it and the quantisation after it.
//
//     h = in + addend                    rounded to the activations' type and written back: it is the residual stream
//     out = h / sqrt(mean(h^2) + eps) * weight
#pragma once

#include "rows.h"

namespace evenflow::EVENFLOW_ISA {

inline void add_row(const NormArgs& args, int row, float* x) {
    const RowsArgs& rows = args.rows;
    float* addend = x + (rows.dim + LANES - 1) / LANES * LANES;
    read_row(args.addend, args.addend_stride * row, args.addend_dtype, rows.dim, addend);
    for (int d = 0; d < rows.dim; d += LANES) store(x + d, load(x + d) + load(addend + d));
    void* stream = const_cast<void*>(rows.in);
    write_row(stream, rows.in_stride * row, rows.dtype, rows.dim, x);
    read_row(stream, rows.in_stride * row, rows.dtype, rows.dim, x);
}

inline void rms_norm(const NormArgs* args) {
    const RowsArgs& rows = args->rows;
    const int dim = rows.dim;
    each_row(rows.num_rows, dim, [&](int row) {
        float* x = row_scratch(2 * (dim + LANES));
        read_row(rows.in, rows.in_stride * row, rows.dtype, dim, x);
        if (args->addend != nullptr) add_row(*args, row, x);
        const F32 factor = splat(inverse_rms(x, dim, args->eps));
        for (int d = 0; d < dim; d += LANES) store(x + d, load(x + d) * factor * load_first(args->weight + d, dim - d));
        finish_row(rows, row, x);
    });
}

}  // namespace evenflow::EVENFLOW_ISA
