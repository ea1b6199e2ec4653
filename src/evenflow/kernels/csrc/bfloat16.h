// bfloat16 as storage: the upper half of an IEEE single, rounded to nearest even.
#pragma once

#include <cstdint>
#include <cstring>

namespace evenflow::EVENFLOW_ISA {

struct bf16 {
    std::uint16_t bits;
};

inline float to_float(float x) { return x; }

inline float to_float(bf16 x) {
    const std::uint32_t bits = std::uint32_t(x.bits) << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}

inline bf16 to_bf16(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return {std::uint16_t((bits >> 16) | 0x40)};  // keep a NaN a NaN
    return {std::uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

}  // namespace evenflow::EVENFLOW_ISA
