// The kernels for AVX-512 with VNNI and BF16: Cooper Lake, Zen 4. build.py has the compiler flags.
#define EVENFLOW_ISA avx512bf16
#define EVENFLOW_UNIT_BELOW avx512_kernels

#include "kernels.h"

namespace evenflow {

const KernelTable* avx512bf16_kernels() {
    static const KernelTable table = avx512bf16::every_kernel("avx512bf16");
    return &table;
}

}  // namespace evenflow
