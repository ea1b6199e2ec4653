// The plain C face of the library: argument records, and one table of functions per instruction set.
//
// Python (native.py) mirrors these records with ctypes, so a change here is a change there and of EVENFLOW_ABI_VERSION.
// No function keeps a pointer after it returns, allocates on the caller's behalf, or throws. Work is spread over the
// threads of the calling thread's OpenMP team (torch.set_num_threads sets it); no result depends on how many there are.
#pragma once

#include <cstdint>

#define EVENFLOW_ABI_VERSION 1

namespace evenflow {

enum class DType : std::int32_t { f32 = 0, bf16 = 1, i8 = 2 };

// One paged pool of one layer: [num_blocks, num_kv_heads, chunk]; kv_pool.h says what a chunk is.
struct PoolArgs {
    std::uint8_t* base;
    std::int32_t block_size;  // a multiple of 16
    std::int32_t num_kv_heads;
    std::int32_t head_dim;
    DType dtype;
};

// New keys and values, [num_tokens, num_kv_heads, head_dim] with a stride between tokens, to their slots of the pool.
struct KvWriteArgs {
    PoolArgs pool;
    const void* key;
    const void* value;
    const std::int32_t* slots;  // [num_tokens], block * block_size + offset
    std::int64_t key_stride;    // elements from one token to the next
    std::int64_t value_stride;
    std::int32_t num_tokens;
    DType dtype;  // of key and value
};

// Attention of a mixed batch over the pool; sequence i owns query rows query_start[i] .. query_start[i + 1] - 1.
struct AttentionArgs {
    PoolArgs pool;
    const void* query;  // [num_tokens, num_heads, head_dim]
    void* out;          // the same shape
    const std::int32_t* query_start;   // [num_seqs + 1]
    const std::int32_t* context_len;   // [num_seqs], tokens before this chunk
    const std::int32_t* block_tables;  // [num_seqs, max_blocks]
    std::int64_t query_stride;         // elements from one token to the next
    std::int64_t out_stride;
    std::int32_t num_seqs;
    std::int32_t max_blocks;
    std::int32_t num_heads;
    std::int32_t window;  // keys a query sees, itself included; INT32_MAX where there is no window
    float scale;
    DType dtype;  // of query and out
};

struct KernelTable {
    const char* isa;
    void (*kv_write)(const KvWriteArgs*);
    void (*attention)(const AttentionArgs*);
};

// One per translation unit isa_*.cpp.
const KernelTable* portable_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();
const KernelTable* avx512bf16_kernels();
const KernelTable* amx_kernels();

}  // namespace evenflow
