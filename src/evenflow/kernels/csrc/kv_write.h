// New keys and values into their slots of the paged pool.
//
// The first token of a block clears the whole block first: attention multiplies what lies beyond a sequence's end by a
// probability of exactly zero, and zero times what an earlier owner left behind must be zero too (it may be a NaN).
#pragma once

#include "kv_pool.h"
#include "rows.h"

namespace evenflow::EVENFLOW_ISA {

// One key and one value of a token, already of the pool's type and zero up to padded_dim. A key goes out unit by unit, each
// to its own cache line; a value's elements are next to those of the tokens that share its units.
template <class T>
EVENFLOW_INLINE void put_key(const KvPool& pool, std::uint8_t* chunk, int offset, const T* key) {
    T* to = pool.key_group<T>(chunk, offset / GROUP) + pool.key_index<T>(offset % GROUP);
    constexpr int unit = PER_UNIT<T>;
    for (int d = 0; d < pool.padded_dim; d += unit) std::memcpy(static_cast<void*>(to + d * GROUP), key + d, sizeof(T) * unit);
}
template <class T>
EVENFLOW_INLINE void put_value(const KvPool& pool, std::uint8_t* chunk, int offset, const T* value) {
    T* to = pool.value_group<T>(chunk, offset / GROUP) + pool.value_index<T>(offset % GROUP);
    for (int d = 0; d < pool.padded_dim; ++d) to[d * PER_UNIT<T>] = value[d];
}

// Token `slot` of KV head `head`; key and value are rows of floats, zero up to padded_dim.
template <class T>
void put_token(const KvPool& pool, int slot, int head, const float* key, const float* value) {
    std::uint8_t* chunk = pool.chunk(slot / pool.block_size, head);
    const int offset = slot % pool.block_size;
    alignas(64) T row[MAX_HEAD_DIM];
    convert_row(key, pool.padded_dim, row);
    put_key(pool, chunk, offset, row);
    convert_row(value, pool.padded_dim, row);
    put_value(pool, chunk, offset, row);
}

// int8: each token of each head has its own scale for its key, and one for its value.
template <>
inline void put_token<std::int8_t>(const KvPool& pool, int slot, int head, const float* key, const float* value) {
    std::uint8_t* chunk = pool.chunk(slot / pool.block_size, head);
    const int offset = slot % pool.block_size;
    alignas(64) std::int8_t row[MAX_HEAD_DIM];
    pool.key_scales(chunk)[offset] = quantise_row(key, pool.padded_dim, pool.padded_dim, row);
    put_key(pool, chunk, offset, row);
    pool.value_scales(chunk)[offset] = quantise_row(value, pool.padded_dim, pool.padded_dim, row);
    put_value(pool, chunk, offset, row);
}

using PutToken = void (*)(const KvPool&, int slot, int head, const float* key, const float* value);

inline PutToken put_token_of(DType dtype) {
    PutToken put = nullptr;
    with_pool_type(dtype, [&](auto t) { put = put_token<typename decltype(t)::type>; });
    return put;
}

inline void clear_fresh_blocks(const KvPool& pool, const std::int32_t* slots, int num_tokens) {
    const std::size_t block_bytes = pool.chunk_bytes * pool.num_kv_heads;
    for (int t = 0; t < num_tokens; ++t)
        if (slots[t] % pool.block_size == 0) std::memset(pool.chunk(slots[t] / pool.block_size, 0), 0, block_bytes);
}

constexpr int PARALLEL_TOKENS = 16;  // fewer are written faster by one thread

inline void kv_write(const KvWriteArgs* record) {
    const KvWriteArgs& args = *record;
    const KvPool pool(args.pool);
    const PutToken put = put_token_of(args.pool.dtype);
    const std::int32_t* slots = args.batch->slots;
    const int num_tokens = args.batch->num_tokens;
    clear_fresh_blocks(pool, slots, num_tokens);
    share_rows(num_tokens, num_tokens >= PARALLEL_TOKENS, [&](int t) {
        alignas(64) float key[MAX_HEAD_DIM], value[MAX_HEAD_DIM];
        for (int head = 0; head < pool.num_kv_heads; ++head) {
            read_row(args.key, t * args.key_stride + head * pool.head_dim, args.dtype, pool.head_dim, key);
            read_row(args.value, t * args.value_stride + head * pool.head_dim, args.dtype, pool.head_dim, value);
            put(pool, slots[t], head, key, value);
        }
    });
}

}  // namespace evenflow::EVENFLOW_ISA
