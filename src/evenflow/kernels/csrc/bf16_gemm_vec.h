// The bf16 product over vector registers: ROWS x PANELS accumulators, one line of weights per panel and step.
#pragma once

namespace evenflow::EVENFLOW_ISA {

template <int ROWS, int PANELS>
EVENFLOW_INLINE void bf16_registers(const Bf16GemmArgs& args, int row, int panel) {
    const int steps = args.padded_k / 2;
    const bf16* lines = static_cast<const bf16*>(args.packed) + std::int64_t(panel) * 16 * args.padded_k;
    const bf16* a = static_cast<const bf16*>(args.a) + row * args.a_stride;
    F32 acc[ROWS * PANELS];
    unrolled<ROWS * PANELS>([&](auto i) { acc[i] = splat(0.0f); });
    for (int s = 0; s < steps; ++s) {
        Units line[PANELS];
        unrolled<PANELS>([&](auto p) { line[p] = load_units(lines + (std::int64_t(p) * steps + s) * 32); });
        unrolled<ROWS>([&](auto r) {
            std::uint32_t pair;
            std::memcpy(&pair, a + r * args.a_stride + 2 * s, sizeof pair);
            const Units left = splat_unit(pair);
            unrolled<PANELS>([&](auto p) { acc[r * PANELS + p] = dot_bf16(acc[r * PANELS + p], left, line[p]); });
        });
    }
    unrolled<ROWS>([&](auto r) {
        if (row + r < args.m)
            unrolled<PANELS>([&](auto p) { finish_sums(args, row + r, panel + p, acc[r * PANELS + p]); });
    });
}

// Rows beyond m are there to be read, up to a multiple of 4.
template <int PANELS>
EVENFLOW_INLINE void bf16_panels(const Bf16GemmArgs& args, int panel) {
    constexpr bool many_registers = TILE_VECS == 4;
    const auto tile = [&](int row, auto R) { bf16_registers<R.value, PANELS>(args, row, panel); };
    if (args.m == 1) return tile(0, Constant<1>{});
    const int rows = (args.m + 3) / 4 * 4;
    if constexpr (many_registers && PANELS <= 2) return in_pieces<12, 8, 4>(0, rows, tile);
    in_pieces<4>(0, rows, tile);
}

inline void bf16_gemm(const Bf16GemmArgs* record) {
    const Bf16GemmArgs& args = *record;
    constexpr int strip = 4;  // panels that one thread takes at a time
    const int panels = (args.n + 15) / 16, strips = (panels + strip - 1) / strip;
    const bool wide = args.m <= 4;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < strips; ++i) {
        const int begin = i * strip, end = panels - begin < strip ? panels : begin + strip;
        const auto body = [&](int panel, auto P) { bf16_panels<P.value>(args, panel); };
        if constexpr (TILE_VECS == 4) {
            if (wide) in_pieces<4, 2, 1>(begin, end, body);
            else in_pieces<2, 1>(begin, end, body);
        } else {
            in_pieces<1>(begin, end, body);
        }
    }
}

}  // namespace evenflow::EVENFLOW_ISA
