// The kernels for AVX2, FMA and F16C: Haswell, Zen and later. build.py has the compiler flags.
#define EVENFLOW_ISA avx2

#include "kernels.h"

namespace evenflow {

const KernelTable* avx2_kernels() {
    static const KernelTable table = avx2::every_kernel("avx2");
    return &table;
}

}  // namespace evenflow
