// The kernels for AMX tiles (bf16, int8) besides AVX-512: Sapphire Rapids and later. build.py has the compiler flags.
#define EVENFLOW_ISA amx

#include "kernels.h"

namespace evenflow {

const KernelTable* amx_kernels() {
    static constexpr KernelTable table = amx::make_table("amx");
    return &table;
}

}  // namespace evenflow
