// Many kernels one after the other, without going back to Python in between.
//
// A kernel ends with threads that wait for the next one, spinning for some microseconds before they sleep. From here the
// next one comes within nanoseconds; from Python it came when they slept, and waking one costs more than a small kernel.
#pragma once

#include "abi.h"

namespace evenflow::EVENFLOW_ISA {

inline void run(const ProgramArgs* program) {
    for (const Call* call = program->calls; call != program->calls + program->num_calls; ++call) {
        if (call->num_rows != nullptr) *call->num_rows = program->num_rows;
        call->kernel(call->args);
    }
}

}  // namespace evenflow::EVENFLOW_ISA
