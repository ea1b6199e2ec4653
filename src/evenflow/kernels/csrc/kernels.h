// Every kernel of one instruction set, as one table.
#pragma once

#include "attention.h"
#include "bf16_gemm.h"
#include "gated.h"
#include "int8_gemm.h"
#include "kv_write.h"
#include "rms_norm.h"
#include "rotary.h"
#if !defined(EVENFLOW_UNIT_BELOW)
#include "logprobs.h"
#include "sampling.h"
#endif

namespace evenflow::EVENFLOW_ISA {

inline KernelTable every_kernel(const char* isa) {
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
#if defined(EVENFLOW_UNIT_BELOW)
        .sample = EVENFLOW_UNIT_BELOW()->sample,  // no products
        .logprobs = EVENFLOW_UNIT_BELOW()->logprobs,
#else
        .sample = sample,
        .logprobs = logprobs,
#endif
    };
}

}  // namespace evenflow::EVENFLOW_ISA
