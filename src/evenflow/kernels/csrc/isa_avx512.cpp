// The kernels for AVX-512 F, BW, DQ, VL and VNNI: Cascade Lake, Ice Lake. build.py has the compiler flags.
#define EVENFLOW_ISA avx512

#include "kernels.h"

namespace evenflow {

const KernelTable* avx512_kernels() {
    static constexpr KernelTable table = avx512::make_table("avx512");
    return &table;
}

}  // namespace evenflow
