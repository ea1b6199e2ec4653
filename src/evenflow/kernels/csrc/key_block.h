// Keys and values of one KV head, as the products of attention read them.
#pragma once

#include "activations.h"
#include "attention_schedule.h"

namespace evenflow::EVENFLOW_ISA {

// Where the groups are. The int8 pool widens them, a few at a time, into memory of its own, and keeps the scales.
template <class T>
struct KeySource {
    static constexpr bool SCALED = false;
    static constexpr int VALUE_GROUPS = PARTITION_GROUPS;  // that are multiplied at once

    // Whether groups 2i and 2i + 1 lie side by side.
    static bool paired(const KvPool& pool) { return pool.block_size % (2 * GROUP) == 0; }
    const std::uint32_t* keys(const KvPool& pool, int, int, std::uint8_t* chunk, int group) {
        return reinterpret_cast<const std::uint32_t*>(pool.key_group<T>(chunk, group));
    }
    const std::uint32_t* values(const KvPool& pool, int, std::uint8_t* chunk, int group) {
        return reinterpret_cast<const std::uint32_t*>(pool.value_group<T>(chunk, group));
    }
    // What the second group of a pair holds where a sequence has but the first: its probabilities are 0, but what those
    // multiply must be finite. A fresh block of the pool is clear already.
    void absent(const KvPool&, int) {}
};

template <>
struct KeySource<std::int8_t> {
    static constexpr bool SCALED = true;
    static constexpr int VALUE_GROUPS = KEY_GROUPS;
    float key_scales[PARTITION];
    float value_scales[PARTITION];
    alignas(64) bf16 wide[KEY_GROUPS * GROUP * MAX_HEAD_DIM];

    static bool paired(const KvPool&) { return true; }
    // Group `g` of the partition, widened into place `i`.
    const std::uint32_t* keys(const KvPool& pool, int g, int i, std::uint8_t* chunk, int group) {
        store(key_scales + g * GROUP, load(pool.key_scales(chunk) + group * GROUP));
        store(value_scales + g * GROUP, load(pool.value_scales(chunk) + group * GROUP));
        return widened(pool, i, pool.key_group<std::int8_t>(chunk, group));
    }
    const std::uint32_t* values(const KvPool& pool, int i, std::uint8_t* chunk, int group) {
        return widened(pool, i, pool.value_group<std::int8_t>(chunk, group));
    }
    void absent(const KvPool& pool, int i) {
        const int count = GROUP * pool.padded_dim;
        std::memset(static_cast<void*>(wide + i * count), 0, sizeof(bf16) * count);
    }

   private:
    const std::uint32_t* widened(const KvPool& pool, int i, const std::int8_t* from) {
        bf16* to = wide + i * GROUP * pool.padded_dim;
        for (int n = 0; n < GROUP * pool.padded_dim; n += WIDEN_STEP) widen(from + n, to + n);
        return reinterpret_cast<const std::uint32_t*>(to);
    }
};

}  // namespace evenflow::EVENFLOW_ISA
