// The product over AMX tiles: 2 x 2 tiles of sums (32 rows x 32 outputs), two tiles of each side per 16 units of k.
//
//            B0   B1          tile registers    0..3 sums    4, 5 activations    6, 7 weights
//      A0    C0   C1
//      A1    C2   C3
#pragma once

#include "amx.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int STRIP_PANELS = 2;
constexpr int TILE_UNITS = 16;
constexpr int TILE_BYTES = 1024;
using GemmRegisters = FullTiles;

// One tile of weights into the second-level cache. The hardware's own prefetcher stops at every page, and a core waits for
// few loads of its own at a time: asked for early, weights come about twice as fast.
EVENFLOW_INLINE void prefetch_tile(const std::uint8_t* tile) {
    for (int line = 0; line < TILE_BYTES; line += PANEL_LINE) _mm_prefetch(tile + line, _MM_HINT_T1);
}

// Rows of two whole panels: what finish() does, without asking anything of each row. As an afterthought to so fast a product
// it was two fifths of the time.
template <class T, class Product>
EVENFLOW_INLINE void finish_rows(const Product& product, int first, int rows, int panel, const typename Product::Element* left,
                                 const typename Product::Element* right) {
    const Outputs& outputs = product.outputs;
    const F32 left_columns = product.columns(panel), right_columns = product.columns(panel + 1);
    T* out = static_cast<T*>(outputs.out) + outputs.stride * first + panel * PANEL;
    const float* bias = outputs.bias == nullptr ? nullptr : outputs.bias + panel * PANEL;
    for (int r = 0; r < rows; ++r, out += outputs.stride, left += PANEL, right += PANEL) {
        F32 y = product.scaled(first + r, left_columns, left), z = product.scaled(first + r, right_columns, right);
        if (bias != nullptr) y = y + load(bias), z = z + load(bias + PANEL);
        store_pair(out, y, z);
    }
}

template <class Product>
void finish_pair(const Product& product, int first, int rows, int panel, const typename Product::Element* left,
                 const typename Product::Element* right) {
    if (product.outputs.dtype == DType::f32) return finish_rows<float>(product, first, rows, panel, left, right);
    finish_rows<bf16>(product, first, rows, panel, left, right);
}

// Rows row .. row + 16 * ROW_TILES - 1 and panels panel, panel + gap.
template <int ROW_TILES, int PANELS, class Product>
void multiply_tiles(const Product& product, int row, int panel) {
    const Sides& sides = product.sides;
    const std::int64_t stride = sides.a_stride;
    const std::uint8_t* a0 = sides.row(row);
    const std::uint8_t* a1 = a0 + 16 * stride;
    const std::uint8_t* b0 = sides.panel(panel);
    const std::uint8_t* b1 = sides.panel(panel + product.gap);
    // The panels that come after these.
    const std::int64_t ahead = row == 0 ? sides.panel(Product::GATED ? 1 : 2) - sides.panel(0) : 0;
    amx_fence();
    _tile_zero(0);
    if constexpr (PANELS == 2) _tile_zero(1);
    if constexpr (ROW_TILES == 2) _tile_zero(2);
    if constexpr (ROW_TILES == 2 && PANELS == 2) _tile_zero(3);
    for (int s = 0; s < sides.steps / TILE_UNITS; ++s) {
        if (ahead != 0) {
            prefetch_tile(b0 + ahead + s * TILE_BYTES);
            if constexpr (PANELS == 2) prefetch_tile(b1 + ahead + s * TILE_BYTES);
        }
        _tile_loadd(4, a0 + s * 64, stride);
        _tile_loadd(6, b0 + s * TILE_BYTES, 64);
        Product::tile_0_4_6();
        if constexpr (PANELS == 2) {
            _tile_loadd(7, b1 + s * TILE_BYTES, 64);
            Product::tile_1_4_7();
        }
        if constexpr (ROW_TILES == 2) {
            _tile_loadd(5, a1 + s * 64, stride);
            Product::tile_2_5_6();
            if constexpr (PANELS == 2) Product::tile_3_5_7();
        }
    }
    alignas(64) typename Product::Element sums[4][16 * 16];
    _tile_stored(0, sums[0], 64);
    if constexpr (PANELS == 2) _tile_stored(1, sums[1], 64);
    if constexpr (ROW_TILES == 2) _tile_stored(2, sums[2], 64);
    if constexpr (ROW_TILES == 2 && PANELS == 2) _tile_stored(3, sums[3], 64);
    amx_fence();
    for (int t = 0; t < ROW_TILES; ++t) {
        const int first = row + 16 * t, rows = sides.m - first < 16 ? sides.m - first : 16;
        if constexpr (Product::GATED) {
            finish_gates(product, first, rows, panel, sums[2 * t], sums[2 * t + 1], PANEL);
            continue;
        }
        if (PANELS == 2 && (panel + 2) * PANEL <= sides.n) {
            finish_pair(product, first, rows, panel, sums[2 * t], sums[2 * t + 1]);
            continue;
        }
        for (int p = 0; p < PANELS; ++p)
            for (int r = 0; r < rows; ++r) finish(product, first + r, panel + p, sums[2 * t + p] + r * 16);
    }
}

template <class Product>
void multiply_panels(const Product& product, int begin, int end) {
    const auto all_rows = [&](int panel, auto P) {
        in_pieces<2, 1>(0, (product.sides.m + 15) / 16, [&](int tile, auto R) {
            multiply_tiles<R.value, P.value>(product, 16 * tile, panel);
        });
    };
    if constexpr (Product::GATED) {
        for (int panel = begin; panel < end; ++panel) all_rows(panel, Constant<2>{});
    } else {
        in_pieces<2, 1>(begin, end, all_rows);
    }
}

}  // namespace evenflow::EVENFLOW_ISA
