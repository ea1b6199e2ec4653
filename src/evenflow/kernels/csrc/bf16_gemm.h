// bf16 x bf16 products, summed in fp32. k is padded to a multiple of 32 (zeros).
#pragma once

#include "gemm.h"

namespace evenflow::EVENFLOW_ISA {

struct Bf16Product {
    using Sum = F32;
    using Element = float;
    Sides sides;
    const Outputs& outputs;
    int gap = 1;
    static constexpr bool GATED = false;

#if defined(__AMX_BF16__)
    // The instruction has its registers in its name.
    static void tile_0_4_6() { _tile_dpbf16ps(0, 4, 6); }
    static void tile_1_4_7() { _tile_dpbf16ps(1, 4, 7); }
#endif
    EVENFLOW_INLINE static F32 start(int) { return splat(0.0f); }
    EVENFLOW_INLINE static F32 dot(F32 acc, Units a, Units b) { return dot_bf16(acc, a, b); }
    EVENFLOW_INLINE static void keep(float* sums, F32 acc) { store(sums, acc); }
    EVENFLOW_INLINE static F32 columns(int) { return splat(1.0f); }
    EVENFLOW_INLINE static F32 scaled(int, F32, const float* sums) { return load(sums); }
};

inline void bf16_gemm(const Bf16GemmArgs* record) {
    const Bf16GemmArgs& args = *record;
    const Outputs outputs{args.out, args.out_stride, args.bias, args.maxima, args.m, args.n, args.dtype};
    const Sides sides{static_cast<const std::uint8_t*>(args.a), args.a_stride * 2,
                      static_cast<const std::uint8_t*>(args.packed), args.padded_k / 2, args.m, args.n};
    if (args.gate == 0) return multiply(Bf16Product{sides, outputs}, outputs);
    multiply(Gated<Bf16Product>{{sides, outputs, args.n / PANEL}, args.gate == GATE_GELU}, outputs);
}

}  // namespace evenflow::EVENFLOW_ISA
