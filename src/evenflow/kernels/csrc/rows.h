// What the row-by-row kernels share: walk the rows in parallel, and end a row as activations or as int8 with its scale.
//
// A row is one token. Its reductions have a fixed order, so nothing depends on the other rows.
#pragma once

#include "activations.h"
#include "shares.h"

namespace evenflow::EVENFLOW_ISA {

// Below this many elements one thread is faster.
constexpr std::int64_t PARALLEL_ELEMENTS = 16384;

template <class Body>
EVENFLOW_INLINE void each_row(int rows, int dim, Body&& body) {
    share_rows(rows, std::int64_t(rows) * dim >= PARALLEL_ELEMENTS, body);
}

// 1 / sqrt(mean(x^2) + eps); x has zeros up to a multiple of 16.
EVENFLOW_INLINE float inverse_rms(const float* x, int dim, float eps) {
    F32 squares = splat(0.0f);
    for (int d = 0; d < dim; d += LANES) squares = fma(load(x + d), load(x + d), squares);
    return 1.0f / std::sqrt(reduce_add(squares) / float(dim) + eps);
}

EVENFLOW_INLINE float largest_magnitude(const float* x, int dim) {
    F32 largest = splat(0.0f);
    for (int d = 0; d < dim; d += LANES) largest = max(largest, abs(load_first(x + d, dim - d)));
    return reduce_max(largest);
}

// scale = largest magnitude / 127, q = nearest(x / scale); zeros from dim to padded_dim.
inline float quantise_row(const float* x, int dim, int padded_dim, std::int8_t* out) {
    const float scale = largest_magnitude(x, dim) / 127.0f;
    const F32 inverse = splat(scale > 0.0f ? 1.0f / scale : 0.0f);
    for (int d = 0; d < dim; d += LANES) store_first(out + d, load(x + d) * inverse, dim - d);
    if (padded_dim > dim) std::memset(out + dim, 0, std::size_t(padded_dim - dim));
    return scale;
}

// Row `row` of the result, whose values are in x.
inline void finish_row(const RowsArgs& args, int row, const float* x) {
    if (args.quantised == nullptr) return write_row(args.out, args.out_stride * row, args.dtype, args.dim, x);
    args.scales[row] = quantise_row(x, args.dim, args.padded_dim, args.quantised + std::int64_t(args.padded_dim) * row);
}

inline void quantise(const RowsArgs* args) {
    each_row(args->num_rows, args->dim, [&](int row) {
        float* x = row_scratch(args->dim);
        read_row(args->in, args->in_stride * row, args->dtype, args->dim, x);
        finish_row(*args, row, x);
    });
}

}  // namespace evenflow::EVENFLOW_ISA
