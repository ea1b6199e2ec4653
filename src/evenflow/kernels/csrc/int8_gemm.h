// int8 x int8 products of activations [m, k] with packed weights [n, k], scaled back to activations in the same pass.
//
// Weights are packed once, in panels of 16 outputs with k padded to a multiple of 64 (zeros):
//
//     packed [n / 16][k / 4][16][4]      a cache line: 4 steps of k for 16 outputs, which VNNI eats in one instruction;
//                                        16 lines: one AMX tile
//
// Sums are exact integers, so the result of a row has the same bits whatever else is in the batch, on every instruction set.
// Work is cut by output panels, so that each thread streams its part of the weights once.
#pragma once

#include "activations.h"
#include "buffer.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int PANEL = 16;

// acc[r][n] of one panel -> out; `count` of the panel's columns exist.
EVENFLOW_INLINE void scale_back(const Int8GemmArgs& args, int row, int panel, I32 acc) {
    const int n = panel * PANEL, count = args.n - n;
    F32 y = to_f32(acc) * load(args.w_scales + n) * splat(args.a_scales[row]);
    if (args.bias != nullptr) y = y + load_first(args.bias + n, count);
    const std::int64_t at = args.out_stride * row + n;
    if (args.dtype == DType::f32) return store_first(static_cast<float*>(args.out) + at, y, count);
    store_first(static_cast<bf16*>(args.out) + at, y, count);
}

}  // namespace evenflow::EVENFLOW_ISA

#if defined(__AMX_INT8__)
#include "int8_gemm_amx.h"
#else
#include "int8_gemm_vec.h"
#endif
