// Rows of activations, float or bf16 by a field of the caller's record, to and from floats.
//
// The type is looked at once per row, so that kernels are compiled once and compute in floats alone.
#pragma once

#include "abi.h"
#include "vec.h"

namespace evenflow::EVENFLOW_ISA {

template <class From, class To>
EVENFLOW_INLINE void convert_row(const From* from, int dim, To* to) {
    for (int d = 0; d < dim; d += LANES) store(to + d, load(from + d));
}

template <class From>
EVENFLOW_INLINE void widen_row(const From* from, int dim, float* to) {
    const int whole = dim / LANES * LANES;
    convert_row(from, whole, to);
    if (whole < dim) store(to + whole, load_first(from + whole, dim - whole));
}

template <class To>
EVENFLOW_INLINE void narrow_row(const float* from, int dim, To* to) {
    const int whole = dim / LANES * LANES;
    convert_row(from, whole, to);
    if (whole < dim) store_first(to + whole, load(from + whole), dim - whole);
}

// Elements offset .. offset + dim - 1; `to` has room for a multiple of 16, and gets zeros beyond dim.
inline void read_row(const void* base, std::int64_t offset, DType dtype, int dim, float* to) {
    if (dtype == DType::f32) return widen_row(static_cast<const float*>(base) + offset, dim, to);
    widen_row(static_cast<const bf16*>(base) + offset, dim, to);
}

// `from` may be read to the next multiple of 16.
inline void write_row(void* base, std::int64_t offset, DType dtype, int dim, const float* from) {
    if (dtype == DType::f32) return narrow_row(from, dim, static_cast<float*>(base) + offset);
    narrow_row(from, dim, static_cast<bf16*>(base) + offset);
}

}  // namespace evenflow::EVENFLOW_ISA
