// int8 x int8 products, scaled back to activations in the same pass. k is padded to a multiple of 64 (zeros).
//
// Sums are exact integers, so the result of a row has the same bits whatever else is in the batch, on every instruction set.
#pragma once

#include "gemm.h"

namespace evenflow::EVENFLOW_ISA {

struct Int8Product {
    using Sum = I32;
    using Element = std::int32_t;
    Sides sides;
    const Outputs& outputs;
    const Int8GemmArgs& args;
    int gap = 1;
    static constexpr bool GATED = false;

#if defined(__AMX_INT8__)
    static void tile_0_4_6() { _tile_dpbssd(0, 4, 6); }
    static void tile_1_4_7() { _tile_dpbssd(1, 4, 7); }
#else
    // What takes the activations' bias out of a panel's sums again: (a + bias) . w - bias * sum(w) = a . w
    EVENFLOW_INLINE I32 start(int panel) const {
        alignas(64) std::int32_t start[LANES];
        for (int i = 0; i < LANES; ++i) start[i] = -ACTIVATION_BIAS * args.w_sums[panel * PANEL + i];
        return load_i32(start);
    }
    EVENFLOW_INLINE static I32 dot(I32 acc, Units a, Units b) { return dot_i8(acc, a, b); }
    EVENFLOW_INLINE static void keep(std::int32_t* sums, I32 acc) { store_i32(sums, acc); }
#endif
    // What is the same for all rows of a panel, and a row's outputs before the bias.
    EVENFLOW_INLINE F32 columns(int panel) const { return load(args.w_scales + panel * PANEL); }
    EVENFLOW_INLINE F32 scaled(int row, F32 columns, const std::int32_t* sums) const {
        return to_f32(load_i32(sums)) * columns * splat(args.a_scales[row]);
    }
};

// `a` with the bias that the instruction wants; the rows beyond m that a tile may read are there too.
inline const std::uint8_t* biased_activations(const Int8GemmArgs& args) {
#if !defined(__AMX_INT8__)
    if constexpr (ACTIVATION_BIAS != 0) {
        static thread_local Buffer<std::uint32_t> biased;
        const std::int64_t units = std::int64_t(args.m + 3) / 4 * args.padded_k;
        biased.reserve(units);
        const auto* from = reinterpret_cast<const std::uint32_t*>(args.a);
        for (std::int64_t i = 0; i < units; ++i) biased[i] = from[i] ^ 0x80808080u;
        return reinterpret_cast<const std::uint8_t*>(biased.data());
    }
#endif
    return reinterpret_cast<const std::uint8_t*>(args.a);
}

inline void int8_gemm(const Int8GemmArgs* record) {
    const Int8GemmArgs& args = *record;
    const Outputs outputs{args.out, args.out_stride, args.bias, args.maxima, args.m, args.n, args.dtype};
    const Sides sides{biased_activations(args), args.padded_k, reinterpret_cast<const std::uint8_t*>(args.packed),
                      args.padded_k / 4, args.m, args.n};
    if (args.gate == 0) return multiply(Int8Product{sides, outputs, args}, outputs);
    multiply(Gated<Int8Product>{{sides, outputs, args, args.n / PANEL}, args.gate == GATE_GELU}, outputs);
}

}  // namespace evenflow::EVENFLOW_ISA
