// Every kernel of one instruction set, as one table. Included once by each isa_*.cpp.
#pragma once

#include "attention.h"
#include "kv_write.h"

namespace evenflow::EVENFLOW_ISA {

inline constexpr KernelTable make_table(const char* isa) {
    return {
        .isa = isa,
        .kv_write = kv_write,
        .attention = attention,
    };
}

}  // namespace evenflow::EVENFLOW_ISA
