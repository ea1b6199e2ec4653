// The kernels for AVX-512 F, BW, DQ, VL and VNNI: Cascade Lake, Ice Lake. build.py has the compiler flags.
#define EVENFLOW_ISA avx512

#include "kernels.h"

namespace evenflow {

const KernelTable* avx512_kernels() {
    static const KernelTable table = avx512::every_kernel("avx512");
    return &table;
}

}  // namespace evenflow
