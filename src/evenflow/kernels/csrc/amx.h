// AMX tiles: eight registers of 16 rows of 64 bytes, and one instruction that multiplies two of them into a third.
//
// Every thread sets the shapes of its tiles before it uses them and gives the state back, since the operating system saves
// it on every switch while it is in use. All our tiles are full: 16 rows of 64 bytes.
#pragma once

#include <immintrin.h>

#include "vec.h"

namespace evenflow::EVENFLOW_ISA {

struct AmxSession {
    AmxSession() {
        struct alignas(64) Config {
            std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
            std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        };
        const Config config;
        _tile_loadconfig(&config);
    }
    ~AmxSession() { _tile_release(); }
    AmxSession(const AmxSession&) = delete;
    AmxSession& operator=(const AmxSession&) = delete;
};

}  // namespace evenflow::EVENFLOW_ISA
