// The product over AMX tiles: 16 rows by 32 outputs, with a tile of activations and two of weights per 16 units of k.
//
//            B0   B1          tile registers    0, 1 sums    4 activations    6, 7 weights
//      A     C0   C1
//
// Twice as many rows would load fewer tiles for as many products. But where AMX is at its slowest (amx.h) four sums take
// longer than two, and where it is at its fastest loads are hidden either way.
#pragma once

#include "amx.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int STRIP_PANELS = 2;
constexpr int TILE_UNITS = 16;
constexpr int TILE_BYTES = 1024;
using GemmRegisters = FullTiles;

// Weights that come next, asked for tile by tile: the lines from `first` to `end` of each tile. They are `bytes` ahead.
//
// The hardware's own prefetcher stops at every page, and a core waits for few loads of its own at a time: asked for early,
// weights come about twice as fast. But a core asks for only so much at a time, and while it does, loads from its own caches
// wait too. So each of the row tiles asks for its part: memory is busy all the time, and never more than it can be.
struct NextWeights {
    std::int64_t bytes;
    int first, end;

    NextWeights(std::int64_t bytes, int tile, int tiles) : bytes(bytes), first(edge(tile, tiles)), end(edge(tile + 1, tiles)) {}
    EVENFLOW_INLINE void ask(const std::uint8_t* tile) const {
        for (int line = first; line < end; ++line) _mm_prefetch(tile + bytes + line * PANEL_LINE, _MM_HINT_T1);
    }

   private:
    static int edge(int tile, int tiles) {
        if (tiles > TILE_UNITS) return tile < TILE_UNITS ? tile : TILE_UNITS;
        return TILE_UNITS * tile / tiles;
    }
};

// The lines that outputs go to, asked for before they are computed. A core has to own a line before it may write to it, and
// the one who read it last was often the other core: waiting for that was a seventh of a product of 512 rows.
template <class Product>
EVENFLOW_INLINE void own_lines(const Product& product, int row, int rows, int panel) {
    const Outputs& outputs = product.outputs;
    const std::int64_t size = outputs.dtype == DType::f32 ? 4 : 2;
    const auto* line = static_cast<const std::uint8_t*>(outputs.out) + (outputs.stride * row + panel * PANEL) * size;
    for (int r = 0; r < rows; ++r, line += outputs.stride * size) __builtin_prefetch(line, 1);
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

// Rows row .. row + 15 and panels panel, panel + gap.
template <int PANELS, class Product>
void multiply_tiles(const Product& product, int row, int panel, const NextWeights& next) {
    const Sides& sides = product.sides;
    const std::uint8_t* a = sides.row(row);
    const std::uint8_t* b0 = sides.panel(panel);
    const std::uint8_t* b1 = sides.panel(panel + product.gap);
    const int rows = sides.m - row < 16 ? sides.m - row : 16;
    own_lines(product, row, rows, panel);
    amx_fence();
    _tile_zero(0);
    if constexpr (PANELS == 2) _tile_zero(1);
    for (int s = 0; s < sides.steps / TILE_UNITS; ++s) {
        next.ask(b0 + s * TILE_BYTES);
        if constexpr (PANELS == 2) next.ask(b1 + s * TILE_BYTES);
        forget_operands();
        _tile_loadd(4, a + s * 64, sides.a_stride);
        _tile_loadd(6, b0 + s * TILE_BYTES, 64);
        Product::tile_0_4_6();
        if constexpr (PANELS == 2) {
            _tile_loadd(7, b1 + s * TILE_BYTES, 64);
            Product::tile_1_4_7();
        }
    }
    alignas(64) typename Product::Element sums[2][16 * 16];
    _tile_stored(0, sums[0], 64);
    if constexpr (PANELS == 2) _tile_stored(1, sums[1], 64);
    amx_fence();
    if constexpr (Product::GATED) return finish_gates(product, row, rows, panel, sums[0], sums[1], PANEL);
    if (PANELS == 2 && (panel + 2) * PANEL <= sides.n) return finish_pair(product, row, rows, panel, sums[0], sums[1]);
    for (int p = 0; p < PANELS; ++p)
        for (int r = 0; r < rows; ++r) finish(product, row + r, panel + p, sums[p] + r * 16);
}

template <class Product>
void multiply_panels(const Product& product, int begin, int end) {
    const std::int64_t next = product.sides.panel(Product::GATED ? 1 : 2) - product.sides.panel(0);
    const auto all_rows = [&](int panel, auto P) {
        const int tiles = (product.sides.m + 15) / 16;
        for (int tile = 0; tile < tiles; ++tile)
            multiply_tiles<P.value>(product, 16 * tile, panel, NextWeights(next, tile, tiles));
    };
    if constexpr (Product::GATED) {
        for (int panel = begin; panel < end; ++panel) all_rows(panel, Constant<2>{});
    } else {
        in_pieces<2, 1>(begin, end, all_rows);
    }
}

}  // namespace evenflow::EVENFLOW_ISA
