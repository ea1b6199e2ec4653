// The bf16 product over AMX tiles: 2 x 2 tiles of sums (32 rows x 32 outputs), as int8_gemm_amx.h has it.
#pragma once

#include "amx.h"

namespace evenflow::EVENFLOW_ISA {

// Rows row .. row + 16 * ROW_TILES - 1 and panels panel .. panel + PANELS - 1.
template <int ROW_TILES, int PANELS>
EVENFLOW_INLINE void bf16_tiles(const Bf16GemmArgs& args, int row, int panel) {
    constexpr int step = 32, tile_items = 512;
    const std::int64_t k = args.padded_k, stride_bytes = 2 * args.a_stride;
    const bf16* a0 = static_cast<const bf16*>(args.a) + row * args.a_stride;
    const bf16* a1 = a0 + 16 * args.a_stride;
    const bf16* b0 = static_cast<const bf16*>(args.packed) + panel * 16 * k;
    const bf16* b1 = b0 + 16 * k;
    amx_fence();
    _tile_zero(0);
    if constexpr (PANELS == 2) _tile_zero(1);
    if constexpr (ROW_TILES == 2) _tile_zero(2);
    if constexpr (ROW_TILES == 2 && PANELS == 2) _tile_zero(3);
    for (int s = 0; s < args.padded_k / step; ++s) {
        _tile_loadd(4, a0 + s * step, stride_bytes);
        _tile_loadd(6, b0 + s * tile_items, 64);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (PANELS == 2) {
            _tile_loadd(7, b1 + s * tile_items, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if constexpr (ROW_TILES == 2) {
            _tile_loadd(5, a1 + s * step, stride_bytes);
            _tile_dpbf16ps(2, 5, 6);
            if constexpr (PANELS == 2) _tile_dpbf16ps(3, 5, 7);
        }
    }
    alignas(64) float sums[4][16 * 16];
    _tile_stored(0, sums[0], 64);
    if constexpr (PANELS == 2) _tile_stored(1, sums[1], 64);
    if constexpr (ROW_TILES == 2) _tile_stored(2, sums[2], 64);
    if constexpr (ROW_TILES == 2 && PANELS == 2) _tile_stored(3, sums[3], 64);
    amx_fence();
    for (int t = 0; t < ROW_TILES; ++t) {
        const int first = row + 16 * t, rows = args.m - first < 16 ? args.m - first : 16;
        for (int p = 0; p < PANELS; ++p)
            for (int r = 0; r < rows; ++r) finish_sums(args, first + r, panel + p, load(sums[2 * t + p] + r * 16));
    }
}

inline void bf16_gemm(const Bf16GemmArgs* record) {
    const Bf16GemmArgs& args = *record;
    const int panels = (args.n + 15) / 16, strips = (panels + 1) / 2, row_tiles = (args.m + 15) / 16;
#pragma omp parallel
    {
        const FullTiles tiles;
#pragma omp for schedule(static)
        for (int strip = 0; strip < strips; ++strip) {
            const int begin = 2 * strip, end = panels - begin < 2 ? panels : begin + 2;
            in_pieces<2, 1>(begin, end, [&](int panel, auto P) {
                in_pieces<2, 1>(0, row_tiles, [&](int tile, auto R) {
                    bf16_tiles<R.value, P.value>(args, 16 * tile, panel);
                });
            });
        }
    }
}

}  // namespace evenflow::EVENFLOW_ISA
