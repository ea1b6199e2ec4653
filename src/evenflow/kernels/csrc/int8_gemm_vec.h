// The int8 product over vector registers: GEMM_ROWS x GEMM_PANELS accumulators, one line of weights per panel and step.
#pragma once

namespace evenflow::EVENFLOW_ISA {

// 24 accumulators of 32 registers with AVX-512, 2 x 2 pairs of 16 with AVX2.
constexpr int GEMM_ROWS = TILE_VECS == 4 ? 6 : 2;
constexpr int GEMM_PANELS = TILE_VECS;

// What takes the activations' bias out of a panel's sums again: (a + bias) . w - bias * sum(w) = a . w
EVENFLOW_INLINE I32 unbiasing_start(const std::int32_t* w_sums) {
    alignas(64) std::int32_t start[LANES];
    for (int i = 0; i < LANES; ++i) start[i] = -ACTIVATION_BIAS * w_sums[i];
    return load_i32(start);
}

// Rows of a as units of four, the bias of unsigned instructions already added.
template <class Act, int ROWS, int PANELS>
EVENFLOW_INLINE void gemm_registers(const Int8GemmArgs& args, const std::uint32_t* a, int row, int panel) {
    const int steps = args.padded_k / 4;
    I32 acc[ROWS][PANELS];
    for (int p = 0; p < PANELS; ++p) {
        const I32 start = unbiasing_start(args.w_sums + (panel + p) * PANEL);
        for (int r = 0; r < ROWS; ++r) acc[r][p] = start;
    }
    const std::int8_t* lines = args.packed + std::int64_t(panel) * PANEL * args.padded_k;
    const std::int64_t panel_bytes = std::int64_t(PANEL) * args.padded_k;
    for (int s = 0; s < steps; ++s) {
        Units line[PANELS];
        for (int p = 0; p < PANELS; ++p) line[p] = load_units(lines + p * panel_bytes + s * 64);
        for (int r = 0; r < ROWS; ++r) {
            const Units left = splat_unit(a[r * steps + s]);
            for (int p = 0; p < PANELS; ++p) acc[r][p] = dot_i8(acc[r][p], left, line[p]);
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int p = 0; p < PANELS; ++p) scale_back<Act>(args, row + r, panel + p, acc[r][p]);
}

template <class Act>
void int8_gemm_to(const Int8GemmArgs& args) {
    static thread_local Buffer<std::int8_t> biased;
    const std::int64_t bytes = std::int64_t(args.m) * args.padded_k;
    const std::int8_t* a = args.a;
    if constexpr (ACTIVATION_BIAS != 0) {
        biased.reserve(bytes);
        for (std::int64_t i = 0; i < bytes; ++i) biased.data()[i] = std::int8_t(args.a[i] ^ 0x80);
        a = biased.data();
    }
    const std::uint32_t* units = reinterpret_cast<const std::uint32_t*>(a);
    const int panels = (args.n + PANEL - 1) / PANEL, strips = (panels + GEMM_PANELS - 1) / GEMM_PANELS;
#pragma omp parallel for schedule(static)
    for (int strip = 0; strip < strips; ++strip) {
        const int panel = strip * GEMM_PANELS;
        const int width = panels - panel < GEMM_PANELS ? panels - panel : GEMM_PANELS;
        with_constant<GEMM_PANELS>(width, [&](auto P) {
            for (int row = 0; row < args.m; row += GEMM_ROWS) {
                const int height = args.m - row < GEMM_ROWS ? args.m - row : GEMM_ROWS;
                with_constant<GEMM_ROWS>(height, [&](auto R) {
                    gemm_registers<Act, decltype(R)::value, decltype(P)::value>(
                        args, units + std::int64_t(row) * (args.padded_k / 4), row, panel);
                });
            }
        });
    }
}

}  // namespace evenflow::EVENFLOW_ISA
