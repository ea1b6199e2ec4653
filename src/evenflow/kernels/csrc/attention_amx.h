// The two products of attention_tile.h over AMX tiles.
//
//     scores     C[rows][16 keys]  += A[rows][16 units of dimensions]   B[16 units of dimensions][16 keys]   a B per group
//     values     C[rows][16 dims]  += A[rows][units of keys]            B[units of keys][16 dims]            a B per two
//
// A unit is two bf16 or four int8, and the pool's layout is B's layout, so nothing is rearranged. Tiles are as tall as there
// are rows: a decode of three heads pays for three. A bf16 instruction sums its 32 products apart before it adds them to C, so
// which keys go together matters for the bits: always groups 2i and 2i + 1, with zero probabilities where the second is
// beyond the end. Where blocks hold 16 tokens the two are not neighbours in memory, and every group goes alone, in half tiles.
// Integers are exact, however they are summed.
#pragma once

#include "amx.h"
#include "attention_schedule.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int AMX_ROWS = 16;
constexpr int AMX_UNITS = 16;

// Bytes per row and rows of the eight tiles, for `upper` and `lower` rows and values of `units` per column.
inline AmxConfig amx_shapes(int upper, int lower, int units) {
    const std::uint8_t u = std::uint8_t(upper), l = std::uint8_t(lower > 0 ? lower : upper), k = std::uint8_t(units);
    const std::uint16_t left = std::uint16_t(units * 4);
    return {.bytes_per_row = {64, 64, 64, 64, left, left, 64, 64}, .rows = {u, u, l, l, u, l, k, k}};
}

// Two tiles of a right side and what they are multiplied with. A step loads all and adds to the sums, in tiles 0, 1 (upper
// rows) and 2, 3 (lower): instructions have their registers in their names.
struct AmxStep {
    const void *upper, *lower;
    std::int64_t left_stride;
    const void *first, *second;
    std::int64_t right_stride;
};

struct AmxPairs {
    using Query = bf16;
    using Weight = bf16;
    using Sum = float;
    static constexpr bool SHORT_HAS_BOTH = false;
    static AmxConfig shapes(int upper, int lower, int units) { return amx_shapes(upper, lower, units); }

    template <bool LOWER>
    EVENFLOW_INLINE static void score(const AmxStep& step) {
        forget_operands();
        _tile_loadd(4, step.upper, step.left_stride);
        _tile_loadd(6, step.first, step.right_stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, step.second, step.right_stride);
        _tile_dpbf16ps(1, 4, 7);
        if constexpr (LOWER) {
            _tile_loadd(5, step.lower, step.left_stride);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    template <bool LOWER>
    EVENFLOW_INLINE static void weigh(const AmxStep& step) {
        score<LOWER>(step);
    }
};

// Values have fewer units in a column than queries in a row. Setting shapes takes as long as a few products, so without lower
// rows (decodes) there are registers for both: left sides in 2 and 3, right sides in 4, 5 and 6, 7.
struct AmxQuads {
    using Query = std::int8_t;
    using Weight = std::uint8_t;
    using Sum = std::int32_t;
    static constexpr bool SHORT_HAS_BOTH = true;
    static AmxConfig shapes(int upper, int lower, int units) {
        if (lower > 0) return amx_shapes(upper, lower, units);
        const std::uint8_t u = std::uint8_t(upper), k = std::uint8_t(units);
        const std::uint16_t left = std::uint16_t(units * 4);
        return {.bytes_per_row = {64, 64, 64, left, 64, 64, 64, 64}, .rows = {u, u, u, u, AMX_UNITS, AMX_UNITS, k, k}};
    }

    template <bool LOWER>
    EVENFLOW_INLINE static void score(const AmxStep& step) {
        if constexpr (LOWER) {
            load_all(step);
            _tile_dpbssd(0, 4, 6);
            _tile_dpbssd(1, 4, 7);
            _tile_dpbssd(2, 5, 6);
            _tile_dpbssd(3, 5, 7);
        } else {
            forget_both();
            _tile_loadd(2, step.upper, step.left_stride);
            _tile_loadd(4, step.first, step.right_stride);
            _tile_dpbssd(0, 2, 4);
            _tile_loadd(5, step.second, step.right_stride);
            _tile_dpbssd(1, 2, 5);
        }
    }
    template <bool LOWER>
    EVENFLOW_INLINE static void weigh(const AmxStep& step) {
        if constexpr (LOWER) {
            load_all(step);
            _tile_dpbusd(0, 4, 6);
            _tile_dpbusd(1, 4, 7);
            _tile_dpbusd(2, 5, 6);
            _tile_dpbusd(3, 5, 7);
        } else {
            forget_both();
            _tile_loadd(3, step.upper, step.left_stride);
            _tile_loadd(6, step.first, step.right_stride);
            _tile_dpbusd(0, 3, 6);
            _tile_loadd(7, step.second, step.right_stride);
            _tile_dpbusd(1, 3, 7);
        }
    }

   private:
    EVENFLOW_INLINE static void forget_both() {
        _tile_zero(2);
        _tile_zero(3);
        forget_operands();
    }
    EVENFLOW_INLINE static void load_all(const AmxStep& step) {
        forget_operands();
        _tile_loadd(4, step.upper, step.left_stride);
        _tile_loadd(5, step.lower, step.left_stride);
        _tile_loadd(6, step.first, step.right_stride);
        _tile_loadd(7, step.second, step.right_stride);
    }
};

template <class Product>
class AmxTiles {
    using Query = typename Product::Query;
    using Weight = typename Product::Weight;
    using Sum = typename Product::Sum;
    static constexpr int UNIT = PER_UNIT<Query>;
    static constexpr int STEP = AMX_UNITS * UNIT;  // dimensions in a tile row

    const int value_groups, value_units;
    int upper = 0, lower = 0, units = 0;

   public:
    // `paired`: groups 2i and 2i + 1 of values are neighbours in memory.
    explicit AmxTiles(bool paired) : value_groups(paired ? 2 : 1), value_units(value_groups * GROUP / UNIT) {}
    AmxTiles(const AmxTiles&) = delete;
    AmxTiles& operator=(const AmxTiles&) = delete;
    ~AmxTiles() {
        if (upper > 0) _tile_release();
    }

    static constexpr bool take(int dim) { return dim % STEP == 0; }

    // out[r][16 g + lane], rows of `stride`.
    void scores(const Query* q, int rows, const std::uint32_t* const* keys, int groups, int dim, Sum* out, int stride) {
        for (int r = 0; r < rows; r += 2 * AMX_ROWS) {
            shape(smaller(rows - r, 2 * AMX_ROWS), AMX_UNITS);
            for (int g = 0; g < groups; g += 2) {
                const int second = g + 1 < groups ? g + 1 : g;  // twice the same, rather than another shape of the loop
                Sum* to = out + r * stride + g * GROUP;
                if (lower > 0)
                    score<true>(q + r * dim, keys[g], keys[second], dim, to, stride);
                else
                    score<false>(q + r * dim, keys[g], keys[second], dim, to, stride);
            }
        }
    }

    // out[r] = P[r] . values
    void values(const Weight* p, int rows, const std::uint32_t* const* values, int groups, int dim, Sum* out) {
        for (int r = 0; r < rows; r += 2 * AMX_ROWS) {
            shape(smaller(rows - r, 2 * AMX_ROWS), value_units);
            for (int d = 0; d < dim; d += 2 * LANES) {
                if (lower > 0)
                    value<true>(p + r * P_STRIDE, values, groups, dim, d, out + r * dim + d);
                else
                    value<false>(p + r * P_STRIDE, values, groups, dim, d, out + r * dim + d);
            }
        }
    }

   private:
    // `wanted`: units that a left row and a right column have.
    void shape(int rows, int wanted) {
        const int first = smaller(rows, AMX_ROWS), second = rows - first;
        if (Product::SHORT_HAS_BOTH && second == 0) wanted = value_units;
        if (upper == first && lower == second && units == wanted) return;
        upper = first, lower = second, units = wanted;
        load_amx_config(Product::shapes(upper, lower, units));
    }

    // LOWER: whether there are lower rows.
    template <bool LOWER>
    static void score(const Query* q, const std::uint32_t* left, const std::uint32_t* right, int dim, Sum* out,
                      int stride) {
        amx_fence();
        zero<LOWER>();
        for (int d = 0; d < dim; d += STEP) {
            const int line = d / UNIT * LANES;
            Product::template score<LOWER>({q + d, q + AMX_ROWS * dim + d, std::int64_t(dim * sizeof(Query)), left + line,
                                            right + line, 64});
        }
        keep<LOWER>(out, stride);
    }

    template <bool LOWER>
    void value(const Weight* p, const std::uint32_t* const* values, int groups, int dim, int d, Sum* out) const {
        amx_fence();
        zero<LOWER>();
        for (int g = 0; g < groups; g += value_groups) {
            const Weight* left = p + g * GROUP;
            const std::uint32_t* lines = values[g] + d;
            Product::template weigh<LOWER>({left, left + AMX_ROWS * P_STRIDE, P_STRIDE * sizeof(Weight), lines, lines + LANES,
                                            std::int64_t(dim * 4)});
        }
        keep<LOWER>(out, dim);
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
    EVENFLOW_INLINE static void keep(Sum* out, int stride) {
        Sum* out_lower = out + AMX_ROWS * stride;
        const std::int64_t bytes = stride * sizeof(Sum);
        _tile_stored(0, out, bytes);
        _tile_stored(1, out + LANES, bytes);
        if constexpr (LOWER) {
            _tile_stored(2, out_lower, bytes);
            _tile_stored(3, out_lower + LANES, bytes);
        }
        amx_fence();
    }
};

}  // namespace evenflow::EVENFLOW_ISA
