// Every kernel of one instruction set, as one table. Included once by each isa_*.cpp.
#pragma once

#include "attention.h"
#include "bf16_gemm.h"
#include "gated.h"
#include "int8_gemm.h"
#include "kv_write.h"
#include "rms_norm.h"
#include "rotary.h"

namespace evenflow::EVENFLOW_ISA {

constexpr KernelTable make_table(const char* isa) {
    return {
        .isa = isa,
        .kv_write = kv_write,
        .attention = attention,
        .rotary = rotary,
        .quantise = quantise,
        .rms_norm = rms_norm,
        .gated = gated,
        .int8_gemm = int8_gemm,
        .bf16_gemm = bf16_gemm,
    };
}

}  // namespace evenflow::EVENFLOW_ISA
