// New keys and values into their slots of the paged pool.
//
// The first token of a block clears the whole block first: attention multiplies what lies beyond a sequence's end by a
// probability of exactly zero, and zero times what an earlier owner left behind must be zero too (it may be a NaN).
#pragma once

#include <cmath>

#include "kv_pool.h"
#include "vec.h"

namespace evenflow::EVENFLOW_ISA {

inline void store_element(float* to, float x) { *to = x; }
inline void store_element(bf16* to, float x) { *to = to_bf16(x); }

template <class T, class In>
inline void put_token(const KvPool<T>& pool, int slot, int head, const In* key, const In* value) {
    std::uint8_t* chunk = pool.chunk(slot / pool.block_size, head);
    const int offset = slot % pool.block_size, lane = offset % GROUP;
    T* keys = pool.key_group(chunk, offset / GROUP);
    T* values = pool.value_group(chunk, offset / GROUP);
    for (int d = 0; d < pool.head_dim; ++d) store_element(keys + pool.key_index(lane, d), to_float(key[d]));
    for (int d = 0; d < pool.head_dim; ++d) store_element(values + pool.value_index(lane, d), to_float(value[d]));
}

// int8: each token of each head has its own scale, the largest magnitude over 127.
template <class In>
inline float quantisation_scale(const In* x, int n) {
    float largest = 0.0f;
    for (int d = 0; d < n; ++d) {
        const float magnitude = std::fabs(to_float(x[d]));
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest / 127.0f;
}

template <class In>
inline void put_token(const KvPool<std::int8_t>& pool, int slot, int head, const In* key, const In* value) {
    std::uint8_t* chunk = pool.chunk(slot / pool.block_size, head);
    const int offset = slot % pool.block_size, lane = offset % GROUP;
    const auto put = [&](const In* from, float* scale, std::int8_t* to, auto&& index) {
        *scale = quantisation_scale(from, pool.head_dim);
        const float inverse = *scale > 0.0f ? 1.0f / *scale : 0.0f;
        for (int d = 0; d < pool.head_dim; ++d) to[index(d)] = std::int8_t(std::nearbyint(to_float(from[d]) * inverse));
    };
    put(key, pool.key_scales(chunk) + offset, pool.key_group(chunk, offset / GROUP),
        [&](int d) { return pool.key_index(lane, d); });
    put(value, pool.value_scales(chunk) + offset, pool.value_group(chunk, offset / GROUP),
        [&](int d) { return pool.value_index(lane, d); });
}

template <class T>
void clear_fresh_blocks(const KvPool<T>& pool, const std::int32_t* slots, int num_tokens) {
    const std::size_t block_bytes = pool.chunk_bytes * pool.num_kv_heads;
    for (int t = 0; t < num_tokens; ++t)
        if (slots[t] % pool.block_size == 0) std::memset(pool.chunk(slots[t] / pool.block_size, 0), 0, block_bytes);
}

template <class T, class In>
void write_tokens(const KvWriteArgs& args) {
    const KvPool<T> pool(args.pool);
    clear_fresh_blocks(pool, args.slots, args.num_tokens);
    const int heads = pool.num_kv_heads;
#pragma omp parallel for schedule(static) if (args.num_tokens >= 16)
    for (int i = 0; i < args.num_tokens * heads; ++i) {
        const int t = i / heads, head = i % heads;
        put_token(pool, args.slots[t], head, static_cast<const In*>(args.key) + t * args.key_stride + head * pool.head_dim,
                  static_cast<const In*>(args.value) + t * args.value_stride + head * pool.head_dim);
    }
}

template <class T>
void write_tokens_of(const KvWriteArgs& args) {
    if (args.dtype == DType::f32) return write_tokens<T, float>(args);
    write_tokens<T, bf16>(args);
}

inline void kv_write(const KvWriteArgs* args) {
    switch (args->pool.dtype) {
        case DType::f32: return write_tokens_of<float>(*args);
        case DType::bf16: return write_tokens_of<bf16>(*args);
        case DType::i8: return write_tokens_of<std::int8_t>(*args);
    }
}

}  // namespace evenflow::EVENFLOW_ISA
