// The kernels for any processor. build.py has the compiler flags.
#define EVENFLOW_ISA portable

#include "kernels.h"

namespace evenflow {

const KernelTable* portable_kernels() {
    static const KernelTable table = portable::every_kernel("portable");
    return &table;
}

}  // namespace evenflow
