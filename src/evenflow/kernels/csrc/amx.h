// AMX tiles: eight registers of up to 16 rows of 64 bytes, and one instruction that multiplies two of them into a third.
//
// Every thread sets the shapes of its tiles before it uses them and gives the state back, since the operating system saves it
// on every switch while it is in use. (GCC's tile loads do not tell it that they read memory: amx_fence() before them.)
//
// A core that another guest of the machine shares can take four times as long for a load and a product, for seconds to
// minutes. It takes much of that back if the registers that are about to be loaded are cleared first, all of them, before the
// first is loaded (which of them, and in which order, was found by trying); on a core of our own that costs nothing.
#pragma once

#include <immintrin.h>

#include "vec.h"

namespace evenflow::EVENFLOW_ISA {

struct alignas(64) AmxConfig {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t bytes_per_row[16] = {};
    std::uint8_t rows[16] = {};
};

EVENFLOW_INLINE void amx_fence() { asm volatile("" ::: "memory"); }

// Tiles 4 to 7, which nobody keeps a sum in.
EVENFLOW_INLINE void forget_operands() {
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

EVENFLOW_INLINE void load_amx_config(const AmxConfig& config) {
    amx_fence();
    _tile_loadconfig(&config);
}

// Eight full tiles, for as long as it lives.
struct FullTiles {
    FullTiles() {
        load_amx_config({.bytes_per_row = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}});
    }
    ~FullTiles() { _tile_release(); }
    FullTiles(const FullTiles&) = delete;
    FullTiles& operator=(const FullTiles&) = delete;
};

}  // namespace evenflow::EVENFLOW_ISA
