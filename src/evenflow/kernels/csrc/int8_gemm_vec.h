// The int8 product over vector registers: GEMM_ROWS x GEMM_PANELS accumulators, one line of weights per panel and step.
#pragma once

namespace evenflow::EVENFLOW_ISA {

// What takes the activations' bias out of a panel's sums again: (a + bias) . w - bias * sum(w) = a . w
EVENFLOW_INLINE I32 unbiasing_start(const std::int32_t* w_sums) {
    alignas(64) std::int32_t start[LANES];
    for (int i = 0; i < LANES; ++i) start[i] = -ACTIVATION_BIAS * w_sums[i];
    return load_i32(start);
}

// Sums of ROWS rows (`a`: units of four, the bias already added) and PANELS panels (`lines`) -> sums [ROWS][PANELS][16].
template <int ROWS, int PANELS>
EVENFLOW_INLINE void gemm_registers(const std::uint32_t* a, const std::int8_t* lines, const std::int32_t* w_sums, int padded_k,
                                    std::int32_t* sums) {
    const int steps = padded_k / 4;
    const std::int64_t panel_bytes = std::int64_t(PANEL) * padded_k;
    I32 acc[ROWS * PANELS];
    unrolled<PANELS>([&](auto p) {
        const I32 start = unbiasing_start(w_sums + p * PANEL);
        unrolled<ROWS>([&](auto r) { acc[r * PANELS + p] = start; });
    });
    for (int s = 0; s < steps; ++s) {
        Units line[PANELS];
        unrolled<PANELS>([&](auto p) { line[p] = load_units(lines + p * panel_bytes + s * 64); });
        unrolled<ROWS>([&](auto r) {
            const Units left = splat_unit(a[r * steps + s]);
            unrolled<PANELS>([&](auto p) { acc[r * PANELS + p] = dot_i8(acc[r * PANELS + p], left, line[p]); });
        });
    }
    unrolled<ROWS * PANELS>([&](auto i) { store_i32(sums + i * LANES, acc[i]); });
}

template <int ROWS, int PANELS>
void gemm_tile(const Int8GemmArgs& args, const std::uint32_t* a, int row, int panel) {
    alignas(64) std::int32_t sums[ROWS * PANELS * LANES];
    gemm_registers<ROWS, PANELS>(a + std::int64_t(row) * (args.padded_k / 4),
                                 args.packed + std::int64_t(panel) * PANEL * args.padded_k, args.w_sums + panel * PANEL,
                                 args.padded_k, sums);
    for (int r = 0; r < ROWS && row + r < args.m; ++r)
        for (int p = 0; p < PANELS; ++p)
            scale_back(args, row + r, panel + p, load_i32(sums + (r * PANELS + p) * LANES));
}

// The tall tile reads few lines of weights per product, which many rows share; the wide one hides latency for few rows. Rows
// beyond m are there to be read, so tiles come in few heights.
EVENFLOW_INLINE void gemm_panels(const Int8GemmArgs& args, const std::uint32_t* a, int panel, auto P) {
    constexpr bool many_registers = TILE_VECS == 4;
    const auto tile = [&](int row, auto R) { gemm_tile<R.value, P.value>(args, a, row, panel); };
    if (args.m == 1) return tile(0, Constant<1>{});
    if constexpr (P.value == 4) return tile(0, Constant<4>{});
    const int rows = (args.m + 3) / 4 * 4;
    if constexpr (many_registers) return in_pieces<12, 8, 4>(0, rows, tile);
    in_pieces<4>(0, rows, tile);
}

// `a` with the bias that the instruction wants; the rows beyond m that a tile may read are there too.
inline const std::uint32_t* biased_activations(const Int8GemmArgs& args) {
    if constexpr (ACTIVATION_BIAS == 0) return reinterpret_cast<const std::uint32_t*>(args.a);
    static thread_local Buffer<std::uint32_t> biased;
    const std::int64_t units = std::int64_t(args.m + 3) / 4 * args.padded_k;
    biased.reserve(units);
    const auto* from = reinterpret_cast<const std::uint32_t*>(args.a);
    for (std::int64_t i = 0; i < units; ++i) biased[i] = from[i] ^ 0x80808080u;
    return biased.data();
}

inline void int8_gemm(const Int8GemmArgs* record) {
    const Int8GemmArgs& args = *record;
    constexpr int strip = 4;  // panels that one thread takes at a time
    const std::uint32_t* a = biased_activations(args);
    const int panels = (args.n + PANEL - 1) / PANEL, strips = (panels + strip - 1) / strip;
    const bool wide = TILE_VECS == 4 && args.m <= 4;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < strips; ++i) {
        const int begin = i * strip, end = panels - begin < strip ? panels : begin + strip;
        const auto body = [&](int panel, auto P) { gemm_panels(args, a, panel, P); };
        if constexpr (TILE_VECS == 4) {
            if (wide) in_pieces<4, 2, 1>(begin, end, body);
            else in_pieces<2, 1>(begin, end, body);
        } else {
            in_pieces<1>(begin, end, body);
        }
    }
}

}  // namespace evenflow::EVENFLOW_ISA
