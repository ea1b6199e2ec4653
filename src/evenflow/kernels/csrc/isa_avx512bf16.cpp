// The kernels for AVX-512 with VNNI and BF16: Cooper Lake, Zen 4. build.py has the compiler flags.
#define EVENFLOW_ISA avx512bf16

#include "kernels.h"

namespace evenflow {

const KernelTable* avx512bf16_kernels() {
    static constexpr KernelTable table = avx512bf16::make_table("avx512bf16");
    return &table;
}

}  // namespace evenflow
