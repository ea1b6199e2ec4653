// bf16 x bf16 products of activations [m, k] with packed weights [n, k], summed in fp32.
//
// Weights are packed once, in panels of 16 outputs with k padded to a multiple of 32 (zeros):
//
//     packed [n / 16][k / 2][16][2]      a cache line: 2 steps of k for 16 outputs, which one instruction eats;
//                                        16 lines: one AMX tile
//
// Every output sums its products in the order of k, whatever the batch, so a row's bits depend on that row alone.
// Work is cut by output panels, so that each thread streams its part of the weights once.
#pragma once

#include "vec.h"

namespace evenflow::EVENFLOW_ISA {

// One row of a panel's sums -> out; `count` of the panel's columns exist.
template <class Act>
EVENFLOW_INLINE void finish_sums(const Bf16GemmArgs& args, int row, int panel, F32 y) {
    const int n = panel * 16, count = args.n - n;
    if (args.bias != nullptr) y = y + load_first(args.bias + n, count);
    store_first(static_cast<Act*>(args.out) + args.out_stride * row + n, y, count);
}

EVENFLOW_INLINE void finish_sums(const Bf16GemmArgs& args, int row, int panel, F32 y) {
    if (args.dtype == DType::f32) return finish_sums<float>(args, row, panel, y);
    finish_sums<bf16>(args, row, panel, y);
}

}  // namespace evenflow::EVENFLOW_ISA

#if defined(__AMX_BF16__)
#include "bf16_gemm_amx.h"
#else
#include "bf16_gemm_vec.h"
#endif
