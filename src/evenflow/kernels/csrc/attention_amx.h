// The two products of attention_tile.h over AMX tiles, for bf16 and a head size that is a multiple of 32.
//
//     scores     C[rows][16 keys]  += A[rows][32 dimensions]  B[16 pairs of dimensions][16 keys]       one B per key group
//     values     C[rows][16 dims]  += A[rows][32 keys]        B[16 pairs of keys][16 dims]             one B per two groups
//
// The pool's layout is B's layout, so nothing is rearranged. Tiles are as tall as there are rows: a decode of three heads pays
// for three. An instruction sums its 32 products apart before it adds them to C, so which keys go together matters for the
// bits: always groups 2i and 2i + 1, with zero probabilities where the second is beyond the end. Where blocks hold 16 tokens
// the two are not neighbours in memory, and every group goes alone, in half tiles.
#pragma once

#include "amx.h"
#include "attention_schedule.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int AMX_STEP = 32;  // bf16 in a tile row

class AmxTiles {
    int rows = 0;

   public:
    AmxTiles() = default;
    AmxTiles(const AmxTiles&) = delete;
    AmxTiles& operator=(const AmxTiles&) = delete;
    ~AmxTiles() {
        if (rows > 0) _tile_release();
    }

    static constexpr bool take(int dim) { return dim % AMX_STEP == 0; }

    // out[r][16 g + lane], rows of KEY_BLOCK floats.
    void scores(const bf16* q, int wanted_rows, const std::uint32_t* const* keys, int groups, int dim, float* out) {
        const std::int64_t q_stride = dim * 2, out_stride = KEY_BLOCK;
        shape(wanted_rows);
        amx_fence();
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int d = 0; d < dim; d += AMX_STEP) {
            _tile_loadd(4, q + d, q_stride);
            const int line = d / 2 * LANES;
            _tile_loadd(6, keys[0] + line, 64);
            _tile_dpbf16ps(0, 4, 6);
            if (groups > 1) {
                _tile_loadd(6, keys[1] + line, 64);
                _tile_dpbf16ps(1, 4, 6);
            }
            if (groups > 2) {
                _tile_loadd(6, keys[2] + line, 64);
                _tile_dpbf16ps(2, 4, 6);
            }
            if (groups > 3) {
                _tile_loadd(6, keys[3] + line, 64);
                _tile_dpbf16ps(3, 4, 6);
            }
        }
        _tile_stored(0, out, out_stride * 4);
        _tile_stored(1, out + LANES, out_stride * 4);
        _tile_stored(2, out + 2 * LANES, out_stride * 4);
        _tile_stored(3, out + 3 * LANES, out_stride * 4);
    }

    // acc[r] = alpha[r] * acc[r] + P[r] . values; `paired`: groups 2i and 2i + 1 are neighbours in memory.
    void values(const bf16* p, int rows_there, const std::uint32_t* const* values, int groups, bool paired, int dim,
                const float* alpha, float* acc) {
        constexpr int p_stride = KEY_BLOCK;
        rescale(acc, alpha, rows_there, dim);
        amx_fence();
        for (int d = 0; d < dim; d += 2 * LANES) {
            float* left = acc + d;
            _tile_loadd(0, left, dim * 4);
            _tile_loadd(1, left + LANES, dim * 4);
            for (int g = 0; g < groups; g += paired ? 2 : 1) {
                const std::uint32_t* lines = values[g] + d;
                if (paired) {
                    _tile_loadd(4, p + g * GROUP, p_stride * 2);
                    _tile_loadd(6, lines, dim * 4);
                    _tile_dpbf16ps(0, 4, 6);
                    _tile_loadd(6, lines + LANES, dim * 4);
                    _tile_dpbf16ps(1, 4, 6);
                } else {
                    _tile_loadd(5, p + g * GROUP, p_stride * 2);
                    _tile_loadd(7, lines, dim * 4);
                    _tile_dpbf16ps(0, 5, 7);
                    _tile_loadd(7, lines + LANES, dim * 4);
                    _tile_dpbf16ps(1, 5, 7);
                }
            }
            _tile_stored(0, left, dim * 4);
            _tile_stored(1, left + LANES, dim * 4);
        }
    }

   private:
    // 0..3 sums, 4 left and 6 right side, 5 left and 7 right side of a single group.
    void shape(int wanted) {
        if (rows == wanted) return;
        rows = wanted;
        const std::uint8_t r = std::uint8_t(rows);
        const AmxConfig config{.bytes_per_row = {64, 64, 64, 64, 64, 32, 64, 64}, .rows = {r, r, r, r, r, r, 16, 8}};
        load_amx_config(config);
    }

    static void rescale(float* acc, const float* alpha, int rows, int dim) {
        for (int r = 0; r < rows; ++r) {
            if (alpha[r] == 1.0f) continue;
            float* row = acc + r * dim;
            for (int d = 0; d < dim; d += LANES) store(row + d, load(row + d) * splat(alpha[r]));
        }
    }
};

}  // namespace evenflow::EVENFLOW_ISA
