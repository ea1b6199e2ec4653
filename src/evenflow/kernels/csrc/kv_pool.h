// How keys and values lie in the paged pool.
//
// A chunk is what one KV head keeps in one block: its keys, then its values, in groups of 16 tokens. Within a group,
//
//   keys      fp32 [head_dim][16]     bf16 [head_dim / 2][16][2]     int8 [head_dim / 4][16][4]
//   values    fp32 [16][head_dim]     bf16 [8][head_dim][2]          int8 [4][head_dim][4]
//
// A cache line holds one unit of 32 bits (one dimension, two or four) of 16 keys, or one (one key, two or four) of 16
// dimensions of values. So scores of 16 keys grow in 16 lanes without a horizontal sum, and it is just what a dot-product
// instruction (AVX512_BF16, VNNI) or an AMX tile wants to read. Keys and values of a block are neighbours: for 16 tokens of
// head size 64 in bf16 they are one 4 KiB page. head_dim is padded to a multiple of 16 with zeros.
// An int8 chunk begins with one scale per token for its keys, then one per token for its values.
#pragma once

#include <cstddef>

#include "abi.h"
#include "vec.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int GROUP = 16;  // tokens
constexpr int MAX_HEAD_DIM = 512;

template <class T>
constexpr int PER_UNIT = 4 / int(sizeof(T));  // elements in a unit

// One class for every element type, which only what touches an element has to know: most code over pools is compiled once.
struct KvPool {
    std::uint8_t* base;
    int block_size, num_kv_heads, head_dim, padded_dim;
    std::size_t group_bytes, scales_bytes, half_bytes, chunk_bytes;

    explicit KvPool(const PoolArgs& args)
        : base(args.base),
          block_size(args.block_size),
          num_kv_heads(args.num_kv_heads),
          head_dim(args.head_dim),
          padded_dim((args.head_dim + 15) / 16 * 16),
          group_bytes(std::size_t(GROUP) * padded_dim * (args.dtype == DType::f32 ? 4 : args.dtype == DType::bf16 ? 2 : 1)),
          scales_bytes(args.dtype == DType::i8 ? std::size_t(block_size) * 4 : 0),
          half_bytes(group_bytes * (block_size / GROUP)),
          chunk_bytes(2 * (scales_bytes + half_bytes)) {}

    std::uint8_t* chunk(int block, int head) const {
        return base + (std::size_t(block) * num_kv_heads + head) * chunk_bytes;
    }
    float* key_scales(std::uint8_t* chunk) const { return reinterpret_cast<float*>(chunk); }
    float* value_scales(std::uint8_t* chunk) const { return reinterpret_cast<float*>(chunk + scales_bytes); }
    template <class T>
    T* key_group(std::uint8_t* chunk, int group) const {
        return reinterpret_cast<T*>(chunk + 2 * scales_bytes + group * group_bytes);
    }
    template <class T>
    T* value_group(std::uint8_t* chunk, int group) const {
        return reinterpret_cast<T*>(chunk + 2 * scales_bytes + half_bytes + group * group_bytes);
    }
    // Where token `lane` (0 .. 15) of a group begins.
    template <class T>
    int key_index(int lane) const {
        return lane * PER_UNIT<T>;
    }
    template <class T>
    int value_index(int lane) const {
        constexpr int n = PER_UNIT<T>;
        return lane / n * n * padded_dim + lane % n;
    }
};

// Call body(Tag<T>) for the pool's element type.
template <class T>
struct Tag {
    using type = T;
};

template <class Body>
EVENFLOW_INLINE void with_pool_type(DType dtype, Body&& body) {
    switch (dtype) {
        case DType::f32: return body(Tag<float>{});
        case DType::bf16: return body(Tag<bf16>{});
        case DType::i8: return body(Tag<std::int8_t>{});
    }
}

}  // namespace evenflow::EVENFLOW_ISA
