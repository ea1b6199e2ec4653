// Sixty-four keys and values of one KV head, as the products of attention read them.
#pragma once

#include "activations.h"
#include "attention_schedule.h"

namespace evenflow::EVENFLOW_ISA {

// Where the groups of one key block are; the int8 pool widens them into memory of its own and keeps the scales. Groups beyond
// the end are absent: their probabilities are 0, but what those multiply must be finite.
template <class T>
struct KeyBlock {
    static constexpr bool SCALED = false;
    const std::uint32_t* keys[KEY_GROUPS];
    const std::uint32_t* values[KEY_GROUPS];

    // Whether groups 2i and 2i + 1 lie side by side.
    static bool paired(const KvPool& pool) { return pool.block_size % (2 * GROUP) == 0; }
    void find(const KvPool& pool, int g, std::uint8_t* chunk, int group) {
        keys[g] = reinterpret_cast<const std::uint32_t*>(pool.key_group<T>(chunk, group));
        values[g] = reinterpret_cast<const std::uint32_t*>(pool.value_group<T>(chunk, group));
    }
    void absent(const KvPool&, int) {}  // a fresh block of the pool is clear already
};

template <>
struct KeyBlock<std::int8_t> {
    static constexpr bool SCALED = true;
    const std::uint32_t* keys[KEY_GROUPS];
    const std::uint32_t* values[KEY_GROUPS];
    float key_scales[KEY_BLOCK];
    float value_scales[KEY_BLOCK];
    alignas(64) bf16 wide_keys[KEY_GROUPS * GROUP * MAX_HEAD_DIM];
    alignas(64) bf16 wide_values[KEY_GROUPS * GROUP * MAX_HEAD_DIM];

    static bool paired(const KvPool&) { return true; }
    void find(const KvPool& pool, int g, std::uint8_t* chunk, int group) {
        const int count = GROUP * pool.padded_dim;
        convert_row(pool.key_group<std::int8_t>(chunk, group), count, wide_keys + g * count);
        convert_row(pool.value_group<std::int8_t>(chunk, group), count, wide_values + g * count);
        keys[g] = reinterpret_cast<const std::uint32_t*>(wide_keys + g * count);
        values[g] = reinterpret_cast<const std::uint32_t*>(wide_values + g * count);
        store(key_scales + g * GROUP, load(pool.key_scales(chunk) + group * GROUP));
        store(value_scales + g * GROUP, load(pool.value_scales(chunk) + group * GROUP));
    }
    void absent(const KvPool& pool, int g) {
        const int count = GROUP * pool.padded_dim;
        std::memset(static_cast<void*>(wide_values + g * count), 0, sizeof(bf16) * count);
        store(key_scales + g * GROUP, splat(0.0f));
        store(value_scales + g * GROUP, splat(0.0f));
    }
};

}  // namespace evenflow::EVENFLOW_ISA
