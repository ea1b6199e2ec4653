// What the row-by-row kernels share: walk the rows in parallel, and end a row as activations or as int8 with its scale.
//
// A row is one token. Its reductions have a fixed order, so nothing depends on the other rows.
#pragma once

#include "buffer.h"
#include "vec.h"

namespace evenflow::EVENFLOW_ISA {

// A parallel region costs some microseconds: below this many elements one thread is faster.
constexpr std::int64_t PARALLEL_ELEMENTS = 16384;

template <class Body>
void each_row(int rows, int dim, Body&& body) {
#pragma omp parallel for schedule(static) if (std::int64_t(rows) * dim >= PARALLEL_ELEMENTS)
    for (int row = 0; row < rows; ++row) body(row);
}

template <class Act>
EVENFLOW_INLINE const Act* row_of(const void* base, std::int64_t stride, int row) {
    return static_cast<const Act*>(base) + stride * row;
}

// int8 of x, whose largest magnitude is given: scale = largest / 127, q = nearest(x / scale). x may be read to the next
// multiple of 16.
inline void quantise_row(const float* x, float largest, int dim, int padded_dim, std::int8_t* out, float* scale) {
    *scale = largest / 127.0f;
    const F32 inverse = splat(*scale > 0.0f ? 1.0f / *scale : 0.0f);
    for (int d = 0; d < dim; d += LANES) store_first(out + d, load(x + d) * inverse, dim - d);
    if (padded_dim > dim) std::memset(out + dim, 0, std::size_t(padded_dim - dim));
}

// Ends row `row`, whose values are in x.
template <class Act>
EVENFLOW_INLINE void finish_row(const RowsArgs& args, int row, const float* x) {
    if (args.quantised == nullptr) {
        Act* out = static_cast<Act*>(args.out) + args.out_stride * row;
        for (int d = 0; d < args.dim; d += LANES) store_first(out + d, load(x + d), args.dim - d);
        return;
    }
    F32 largest = splat(0.0f);
    for (int d = 0; d < args.dim; d += LANES) largest = max(largest, abs(load_first(x + d, args.dim - d)));
    quantise_row(x, reduce_max(largest), args.dim, args.padded_dim,
                 args.quantised + std::int64_t(args.padded_dim) * row, args.scales + row);
}

template <class Act>
void quantise_rows(const RowsArgs& args) {
    each_row(args.num_rows, args.dim, [&](int row) {
        const Act* in = row_of<Act>(args.in, args.in_stride, row);
        float* x = row_scratch(args.dim);
        for (int d = 0; d < args.dim; d += LANES) store(x + d, load_first(in + d, args.dim - d));
        finish_row<Act>(args, row, x);
    });
}

inline void quantise(const RowsArgs* args) {
    if (args->dtype == DType::f32) return quantise_rows<float>(*args);
    quantise_rows<bf16>(*args);
}

}  // namespace evenflow::EVENFLOW_ISA
