// Where the residual stream begins and ends: a row of the embedding for each token, and what the last layer adds.
#pragma once

#include "rows.h"

namespace evenflow::EVENFLOW_ISA {

// A token that the table does not have is a row of zeros: no caller gives one, and no memory is read for it.
inline void embed(const EmbedArgs* record) {
    const EmbedArgs& args = *record;
    const int dim = args.dim;
    each_row(args.num_rows, dim, [&](int row) {
        float* x = row_scratch(dim);
        const std::int64_t id = args.token_ids[row];
        if (id >= 0 && id < args.vocab)
            read_row(args.table, args.table_stride * id, args.table_dtype, dim, x);
        else
            std::memset(x, 0, sizeof(*x) * dim);
        for (int d = 0; d < dim; d += LANES) store(x + d, load(x + d) * splat(args.scale));
        write_row(args.out, args.out_stride * row, args.dtype, dim, x);
    });
}

inline void add(const AddArgs* record) {
    const AddArgs& args = *record;
    each_row(args.num_rows, args.dim, [&](int row) {
        const int padded = (args.dim + LANES - 1) / LANES * LANES;
        float* x = row_scratch(2 * padded);
        float* addend = x + padded;
        read_row(args.to, args.to_stride * row, args.dtype, args.dim, x);
        read_row(args.addend, args.addend_stride * row, args.addend_dtype, args.dim, addend);
        for (int d = 0; d < padded; d += LANES) store(x + d, load(x + d) + load(addend + d));
        write_row(args.to, args.to_stride * row, args.dtype, args.dim, x);
    });
}

}  // namespace evenflow::EVENFLOW_ISA
