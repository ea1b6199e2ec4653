// The kernels for AMX tiles (bf16, int8) besides AVX-512: Sapphire Rapids and later. build.py has the compiler flags.
#define EVENFLOW_ISA amx
#define EVENFLOW_UNIT_BELOW avx512bf16_kernels

#include "attention.h"
#include "bf16_gemm.h"
#include "int8_gemm.h"

namespace evenflow {

const KernelTable* amx_kernels() {
    static const KernelTable table = [] {
        KernelTable all = *avx512bf16_kernels();  // tiles bring nothing to the others
        all.isa = "amx";
        all.attention = amx::attention;
        all.int8_gemm = amx::int8_gemm;
        all.bf16_gemm = amx::bf16_gemm;
        return all;
    }();
    return &table;
}

}  // namespace evenflow
