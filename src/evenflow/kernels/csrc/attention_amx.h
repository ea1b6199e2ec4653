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

constexpr int AMX_ROWS = 16;

class AmxTiles {
    int upper = 0, lower = 0;

   public:
    AmxTiles() = default;
    AmxTiles(const AmxTiles&) = delete;
    AmxTiles& operator=(const AmxTiles&) = delete;
    ~AmxTiles() {
        if (upper > 0) _tile_release();
    }

    static constexpr bool take(int dim) { return dim % AMX_STEP == 0; }

    // out[r][16 g + lane], rows of SCORE_STRIDE floats; up to KEY_GROUPS groups.
    void scores(const bf16* q, int rows, const std::uint32_t* const* keys, int groups, int dim, float* out) {
        shape(rows);
        for (int g = 0; g < groups; g += 2) {
            const int second = g + 1 < groups ? g + 1 : g;  // twice the same, rather than another shape of the loop
            if (lower > 0)
                score<true>(q, keys[g], keys[second], dim, out + g * GROUP);
            else
                score<false>(q, keys[g], keys[second], dim, out + g * GROUP);
        }
    }

    // acc[r] (+)= P[r] . values, onto zero if `fresh`; `paired`: groups 2i and 2i + 1 are neighbours in memory.
    void values(const bf16* p, int rows, const std::uint32_t* const* values, int groups, bool paired, int dim, bool fresh,
                float* acc) {
        if (!paired) return values_of_single_groups(p, rows, values, groups, dim, fresh, acc);
        shape(rows);
        for (int d = 0; d < dim; d += 2 * LANES) {
            if (lower > 0)
                value<true>(p, values, groups, dim, d, fresh, acc);
            else
                value<false>(p, values, groups, dim, d, fresh, acc);
        }
    }

   private:
    // 0, 1 sums of the upper rows, 2, 3 of the lower; 4, 5 left sides, upper and lower; 6, 7 right sides.
    void shape(int rows) {
        const int first = smaller(rows, AMX_ROWS), second = rows - first;
        if (upper == first && lower == second) return;
        upper = first, lower = second;
        const std::uint8_t u = std::uint8_t(upper), l = std::uint8_t(lower > 0 ? lower : upper);
        load_amx_config({.bytes_per_row = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {u, u, l, l, u, l, 16, 16}});
    }

    // LOWER: whether there are lower rows.
    template <bool LOWER>
    static void score(const bf16* q, const std::uint32_t* left, const std::uint32_t* right, int dim, float* out) {
        const bf16* q_lower = q + AMX_ROWS * dim;
        float* out_lower = out + AMX_ROWS * SCORE_STRIDE;
        const std::int64_t q_stride = dim * 2, out_stride = SCORE_STRIDE * 4;
        amx_fence();
        zero<LOWER>();
        for (int d = 0; d < dim; d += AMX_STEP) {
            const int line = d / 2 * LANES;
            _tile_loadd(4, q + d, q_stride);
            if constexpr (LOWER) _tile_loadd(5, q_lower + d, q_stride);
            _tile_loadd(6, left + line, 64);
            _tile_loadd(7, right + line, 64);
            multiply<LOWER>();
        }
        keep<LOWER>(out, out_lower, out_stride);
    }

    template <bool LOWER>
    static void value(const bf16* p, const std::uint32_t* const* values, int groups, int dim, int d, bool fresh, float* acc) {
        const std::int64_t stride = dim * 4;
        float *out = acc + d, *out_lower = out + AMX_ROWS * dim;
        const bf16* p_lower = p + AMX_ROWS * P_STRIDE;
        amx_fence();
        if (fresh) {
            zero<LOWER>();
        } else {
            _tile_loadd(0, out, stride);
            _tile_loadd(1, out + LANES, stride);
            if constexpr (LOWER) {
                _tile_loadd(2, out_lower, stride);
                _tile_loadd(3, out_lower + LANES, stride);
            }
        }
        for (int g = 0; g < groups; g += 2) {
            const std::uint32_t* lines = values[g] + d;
            _tile_loadd(4, p + g * GROUP, P_STRIDE * 2);
            if constexpr (LOWER) _tile_loadd(5, p_lower + g * GROUP, P_STRIDE * 2);
            _tile_loadd(6, lines, stride);
            _tile_loadd(7, lines + LANES, stride);
            multiply<LOWER>();
        }
        keep<LOWER>(out, out_lower, stride);
    }

    template <bool LOWER>
    EVENFLOW_INLINE static void zero() {
        _tile_zero(0);
        _tile_zero(1);
        if constexpr (LOWER) {
            _tile_zero(2);
            _tile_zero(3);
        }
    }

    template <bool LOWER>
    EVENFLOW_INLINE static void multiply() {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if constexpr (LOWER) {
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }

    template <bool LOWER>
    EVENFLOW_INLINE static void keep(float* out, float* out_lower, std::int64_t stride) {
        _tile_stored(0, out, stride);
        _tile_stored(1, out + LANES, stride);
        if constexpr (LOWER) {
            _tile_stored(2, out_lower, stride);
            _tile_stored(3, out_lower + LANES, stride);
        }
    }

    // Blocks of 16 tokens: every group alone, in half tiles, sixteen rows and sixteen columns at a time.
    void values_of_single_groups(const bf16* p, int rows, const std::uint32_t* const* values, int groups, int dim, bool fresh,
                                 float* acc) {
        const std::int64_t stride = dim * 4;
        for (int r = 0; r < rows; r += AMX_ROWS) {
            const std::uint8_t n = std::uint8_t(smaller(rows - r, AMX_ROWS));
            load_amx_config({.bytes_per_row = {64, 0, 0, 0, 32, 0, 64}, .rows = {n, 0, 0, 0, n, 0, 8}});
            for (int d = 0; d < dim; d += LANES) {
                float* out = acc + r * dim + d;
                amx_fence();
                if (fresh)
                    _tile_zero(0);
                else
                    _tile_loadd(0, out, stride);
                for (int g = 0; g < groups; ++g) {
                    _tile_loadd(4, p + r * P_STRIDE + g * GROUP, P_STRIDE * 2);
                    _tile_loadd(6, values[g] + d, stride);
                    _tile_dpbf16ps(0, 4, 6);
                }
                _tile_stored(0, out, stride);
            }
        }
        upper = lower = 0;
        _tile_release();
    }
};

}  // namespace evenflow::EVENFLOW_ISA
