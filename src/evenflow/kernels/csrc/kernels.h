// Every kernel of one instruction set, as one table.
#pragma once

#include "attention.h"
#include "bf16_gemm.h"
#include "gated.h"
#include "int8_gemm.h"
#include "kv_write.h"
#include "layout.h"
#include "program.h"
#include "residual.h"
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
        .run = EVENFLOW_UNIT_BELOW()->run,
        .lay_out = EVENFLOW_UNIT_BELOW()->lay_out,
#else
        .sample = sample,
        .logprobs = logprobs,
        .run = run,
        .lay_out = lay_out,
#endif
        .embed = embed,
        .add = add,
    };
}

}  // namespace evenflow::EVENFLOW_ISA
