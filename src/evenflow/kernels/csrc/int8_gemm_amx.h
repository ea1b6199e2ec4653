// The int8 product over AMX tiles: 2 x 2 tiles of sums (32 rows x 32 outputs), two tiles of each side per 64 steps of k.
//
//            B0   B1          tile registers    0..3 sums    4, 5 activations    6, 7 weights
//      A0    C0   C1
//      A1    C2   C3
#pragma once

#include "amx.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int TILE_K = 64;       // bytes of a tile row
constexpr int TILE_BYTES = 1024;

EVENFLOW_INLINE void finish_tile(const Int8GemmArgs& args, int row, int panel, const std::int32_t* sums) {
    const int rows = args.m - row < 16 ? args.m - row : 16;
    for (int r = 0; r < rows; ++r) scale_back(args, row + r, panel, load_i32(sums + r * 16));
}

// Rows row .. row + 16 * ROW_TILES - 1 and panels panel .. panel + PANELS - 1.
template <int ROW_TILES, int PANELS>
EVENFLOW_INLINE void gemm_tiles(const Int8GemmArgs& args, int row, int panel) {
    const std::int64_t k = args.padded_k;
    const std::int8_t* a0 = args.a + row * k;
    const std::int8_t* a1 = a0 + 16 * k;
    const std::int8_t* b0 = args.packed + panel * PANEL * k;
    const std::int8_t* b1 = b0 + PANEL * k;
    amx_fence();
    _tile_zero(0);
    if constexpr (PANELS == 2) _tile_zero(1);
    if constexpr (ROW_TILES == 2) _tile_zero(2);
    if constexpr (ROW_TILES == 2 && PANELS == 2) _tile_zero(3);
    for (int s = 0; s < args.padded_k / TILE_K; ++s) {
        _tile_loadd(4, a0 + s * TILE_K, k);
        _tile_loadd(6, b0 + s * TILE_BYTES, 64);
        _tile_dpbssd(0, 4, 6);
        if constexpr (PANELS == 2) {
            _tile_loadd(7, b1 + s * TILE_BYTES, 64);
            _tile_dpbssd(1, 4, 7);
        }
        if constexpr (ROW_TILES == 2) {
            _tile_loadd(5, a1 + s * TILE_K, k);
            _tile_dpbssd(2, 5, 6);
            if constexpr (PANELS == 2) _tile_dpbssd(3, 5, 7);
        }
    }
    alignas(64) std::int32_t sums[4][16 * 16];
    _tile_stored(0, sums[0], 64);
    if constexpr (PANELS == 2) _tile_stored(1, sums[1], 64);
    if constexpr (ROW_TILES == 2) _tile_stored(2, sums[2], 64);
    if constexpr (ROW_TILES == 2 && PANELS == 2) _tile_stored(3, sums[3], 64);
    for (int r = 0; r < ROW_TILES; ++r)
        for (int p = 0; p < PANELS; ++p) finish_tile(args, row + 16 * r, panel + p, sums[2 * r + p]);
}

inline void int8_gemm(const Int8GemmArgs* record) {
    const Int8GemmArgs& args = *record;
    const int panels = (args.n + PANEL - 1) / PANEL, strips = (panels + 1) / 2, row_tiles = (args.m + 15) / 16;
#pragma omp parallel
    {
        const FullTiles tiles;
#pragma omp for schedule(static)
        for (int strip = 0; strip < strips; ++strip) {
            const int begin = 2 * strip, end = panels - begin < 2 ? panels : begin + 2;
            in_pieces<2, 1>(begin, end, [&](int panel, auto P) {
                in_pieces<2, 1>(0, row_tiles, [&](int tile, auto R) {
                    gemm_tiles<R.value, P.value>(args, 16 * tile, panel);
                });
            });
        }
    }
}

}  // namespace evenflow::EVENFLOW_ISA
