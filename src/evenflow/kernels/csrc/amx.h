// AMX tiles: eight registers of up to 16 rows of 64 bytes, and one instruction that multiplies two of them into a third.
//
// Every thread sets the shapes of its tiles before it uses them and gives the state back, since the operating system saves it
// on every switch while it is in use. (GCC's tile loads do not tell it that they read memory: amx_fence() before them.)
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
