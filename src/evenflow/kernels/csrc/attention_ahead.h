// Asking memory for what will be read, while there is something to compute.
//
// A decode reads its keys and values once, from memory, in pieces of a few KiB that the hardware's own prefetcher sees the
// end of before it has begun. And memory would have nothing to do while probabilities are computed. So a short tile asks for
// its values as it multiplies its keys, and for the keys that its thread reads next as it computes its exponentials. It pays
// for int8 (15 % of the time of 64 decodes from memory); bf16 has twice as much to read, and memory is busy all the time.
#pragma once

#include "attention_schedule.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int SHORT_ROWS = 8;  // more rows than that compute for longer than they read

EVENFLOW_INLINE void ask_for(const void* from, int bytes) {
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}

// A partition's chunks.
class Ahead {
    const std::uint8_t* chunks[PARTITION_GROUPS];
    int bytes[PARTITION_GROUPS];
    int count = 0;

   public:
    void add(const std::uint8_t* chunk, std::size_t size) { chunks[count] = chunk, bytes[count++] = int(size); }

    // Part `part` of `parts` of it.
    EVENFLOW_INLINE void ask(int part, int parts) const {
        for (int i = count * part / parts; i < count * (part + 1) / parts; ++i) ask_for(chunks[i], bytes[i]);
    }
};

}  // namespace evenflow::EVENFLOW_ISA
