// What Python calls first: which version this is, what this processor can run, and the table of kernels for it.
//
// An instruction set counts only if the operating system saves its registers too; for AMX a process must also ask.
#include <cstring>

#include "abi.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace evenflow {
namespace {

#if defined(__x86_64__)
[[maybe_unused]] bool has_amx() {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
    constexpr unsigned AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24, AMX_INT8 = 1u << 25;
    if ((edx & (AMX_BF16 | AMX_TILE | AMX_INT8)) != (AMX_BF16 | AMX_TILE | AMX_INT8)) return false;
    constexpr int ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
bool has_avx512bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
bool has_full_amx() { return has_avx512bf16() && has_amx(); }
#endif

struct Level {
    const char* name;
    bool (*supported)();
    const KernelTable* (*table)();
};

// Best first; build.py says which of them its compiler could make.
const Level LEVELS[] = {
#if defined(EVENFLOW_WITH_AMX)
    {"amx", has_full_amx, amx_kernels},
#endif
#if defined(EVENFLOW_WITH_AVX512BF16)
    {"avx512bf16", has_avx512bf16, avx512bf16_kernels},
#endif
#if defined(EVENFLOW_WITH_AVX512)
    {"avx512", has_avx512, avx512_kernels},
#endif
#if defined(EVENFLOW_WITH_AVX2)
    {"avx2", has_avx2, avx2_kernels},
#endif
    {"portable", [] { return true; }, portable_kernels},
};

}  // namespace
}  // namespace evenflow

#define EVENFLOW_EXPORT extern "C" __attribute__((visibility("default")))

EVENFLOW_EXPORT std::int32_t evenflow_abi_version() { return EVENFLOW_ABI_VERSION; }

// A digest of the sources that this library was built from.
EVENFLOW_EXPORT const char* evenflow_build_id() { return EVENFLOW_BUILD_ID; }

// The kernels of one instruction set by name, or the best of this processor for a null name; null if it cannot run them.
EVENFLOW_EXPORT const evenflow::KernelTable* evenflow_kernels(const char* isa) {
    for (const auto& level : evenflow::LEVELS) {
        if (isa != nullptr && std::strcmp(isa, level.name) != 0) continue;
        if (level.supported()) return level.table();
        if (isa != nullptr) return nullptr;
    }
    return nullptr;
}
