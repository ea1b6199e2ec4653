// The product over vector registers: ROWS x PANELS accumulators, one line of weights per panel and step.
#pragma once

namespace evenflow::EVENFLOW_ISA {

constexpr int STRIP_PANELS = 4;
struct GemmRegisters {};

template <int ROWS, int PANELS, class Product>
void multiply_tile(const Product& product, int row, int panel) {
    using Sum = typename Product::Sum;
    const Sides& sides = product.sides;
    const int steps = sides.steps;
    const std::int64_t stride = sides.a_stride / 4;
    const auto* a = reinterpret_cast<const std::uint32_t*>(sides.row(row));
    const std::uint8_t* lines[PANELS];
    unrolled<PANELS>([&](int p) { lines[p] = sides.panel(panel + p * product.gap); });
    Sum acc[ROWS * PANELS];
    unrolled<PANELS>([&](int p) {
        const Sum start = product.start(panel + p * product.gap);
        unrolled<ROWS>([&](int r) { acc[r * PANELS + p] = start; });
    });
    for (int s = 0; s < steps; ++s) {
        Units line[PANELS];
        unrolled<PANELS>([&](int p) { line[p] = load_units(lines[p] + std::int64_t(s) * PANEL_LINE); });
        unrolled<ROWS>([&](int r) {
            const Units left = splat_unit(a[r * stride + s]);
            unrolled<PANELS>([&](int p) { acc[r * PANELS + p] = Product::dot(acc[r * PANELS + p], left, line[p]); });
        });
    }
    alignas(64) typename Product::Element sums[ROWS * PANELS * LANES];
    unrolled<ROWS * PANELS>([&](int i) { Product::keep(sums + i * LANES, acc[i]); });
    const int rows = sides.m - row < ROWS ? sides.m - row : ROWS;
    if constexpr (Product::GATED) return finish_gates(product, row, rows, panel, sums, sums + LANES, PANELS * LANES);
    for (int r = 0; r < rows; ++r)
        for (int p = 0; p < PANELS; ++p) finish(product, row + r, panel + p, sums + (r * PANELS + p) * LANES);
}

// The tall tile reads few lines of weights per product, which many rows share; the wide one hides latency for few rows. Rows
// beyond m are there to be read, up to a multiple of 4, so tiles come in few heights.
template <int PANELS, class Product>
void multiply_rows(const Product& product, int panel) {
    constexpr bool many_registers = TILE_VECS == 4;
    const int m = product.sides.m, rows = (m + 3) / 4 * 4;
    const auto tile = [&](int row, auto R) { multiply_tile<R.value, PANELS>(product, row, panel); };
    if (m == 1) return tile(0, Constant<1>{});
    if constexpr (many_registers && PANELS <= 2) return in_pieces<12, 8, 4>(0, rows, tile);
    in_pieces<4>(0, rows, tile);
}

template <class Product>
void multiply_panels(const Product& product, int begin, int end) {
    const auto body = [&](int panel, auto P) { multiply_rows<P.value>(product, panel); };
    if constexpr (Product::GATED) {
        for (int panel = begin; panel < end; ++panel) multiply_rows<2>(product, panel);
    } else if constexpr (TILE_VECS == 4) {
        if (product.sides.m <= 4) in_pieces<4, 2, 1>(begin, end, body);
        else in_pieces<2, 1>(begin, end, body);
    } else {
        in_pieces<1>(begin, end, body);
    }
}

}  // namespace evenflow::EVENFLOW_ISA
