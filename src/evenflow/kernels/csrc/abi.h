// The plain C face of the library: argument records, and one table of functions per instruction set.
//
// Python (native.py) mirrors these records with ctypes, so a change here is a change there and of EVENFLOW_ABI_VERSION.
// No function keeps a pointer after it returns, allocates on the caller's behalf, or throws. Work is spread over the
// threads of the calling thread's OpenMP team (torch.set_num_threads sets it); no result depends on how many there are.
#pragma once

#include <cstdint>

#define EVENFLOW_ABI_VERSION 5

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

// Where the tokens of a step lie, the same for all layers: sequence i owns rows query_start[i] .. query_start[i + 1] - 1.
struct BatchArgs {
    const std::int32_t* query_start;   // [num_seqs + 1]
    const std::int32_t* context_len;   // [num_seqs], tokens before this chunk
    const std::int32_t* block_tables;  // [num_seqs, max_blocks]
    const std::int32_t* slots;         // [num_tokens], block * block_size + offset
    const std::int64_t* positions;     // [num_tokens]
    std::int32_t num_seqs;
    std::int32_t num_tokens;
    std::int32_t max_blocks;
};

// New keys and values, [num_tokens, num_kv_heads, head_dim] with a stride between tokens, to their slots of the pool.
struct KvWriteArgs {
    PoolArgs pool;
    const void* key;
    const void* value;
    const BatchArgs* batch;
    std::int64_t key_stride;  // elements from one token to the next
    std::int64_t value_stride;
    DType dtype;  // of key and value
};

// Attention of a mixed batch over the pool.
struct AttentionArgs {
    PoolArgs pool;
    const void* query;  // [num_tokens, num_heads, head_dim]
    void* out;          // the same shape
    const BatchArgs* batch;
    std::int64_t query_stride;  // elements from one token to the next
    std::int64_t out_stride;
    std::int32_t num_heads;
    std::int32_t window;  // keys a query sees, itself included; INT32_MAX where there is no window
    float scale;
    DType dtype;  // of query and out
};

// Queries, keys and values of a fused projection, [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]: queries are
// normed and rotated in place, keys normed and rotated into the pool, values copied into the pool.
struct RotaryArgs {
    PoolArgs pool;
    void* qkv;
    const BatchArgs* batch;
    const float* cos;      // [*, head_dim / 2], a row per position; or, where `by_token`, per token of the batch
    const float* sin;
    const float* qk_norm;  // [num_heads + num_kv_heads, head_dim], or null: no norm
    std::int64_t stride;   // elements from one token to the next
    std::int32_t num_heads;
    std::int32_t by_token;
    float eps;
    DType dtype;
};

// Rows [num_rows, dim] of activations to rows of `out` (of dtype), or, where `quantised` is set, to int8 rows of padded_dim
// bytes (zero beyond dim) with one scale per row.
struct RowsArgs {
    const void* in;
    void* out;
    std::int8_t* quantised;
    float* scales;
    std::int64_t in_stride;   // elements
    std::int64_t out_stride;  // elements
    std::int32_t num_rows;
    std::int32_t dim;
    std::int32_t padded_dim;
    DType dtype;
};

// in += addend (where there is one), then out = in / rms(in) * weight.
struct NormArgs {
    RowsArgs rows;
    const void* addend;
    const float* weight;
    std::int64_t addend_stride;
    float eps;
    DType addend_dtype;
};

// Row token_ids[i] of a table [vocab, dim], times scale, to row i of `out`.
struct EmbedArgs {
    const std::int64_t* token_ids;  // [num_rows]
    const void* table;
    void* out;
    std::int64_t table_stride;  // elements
    std::int64_t out_stride;    // elements
    std::int32_t num_rows;
    std::int32_t dim;
    std::int32_t vocab;
    float scale;
    DType table_dtype;
    DType dtype;  // of out
};

// to += addend, rows of dim elements.
struct AddArgs {
    void* to;
    const void* addend;
    std::int64_t to_stride;  // elements
    std::int64_t addend_stride;
    std::int32_t num_rows;
    std::int32_t dim;
    DType dtype;  // of `to`
    DType addend_dtype;
};

// out = activation(gate) * up, the two side by side in rows of 2 * dim.
struct GatedArgs {
    RowsArgs rows;
    std::int32_t activation;  // 0 SiLU, 1 GELU (tanh)
};

// out[m, n] = a[m, :] . w[n, :] * w_scales[n] * a_scales[m] + bias[n]
//
// With a gate (1 SiLU, 2 GELU (tanh); 0 is none), y being that for 2 n outputs of which bias and weights are:
// out[m, n] = activation(y[m, n]) * y[m, n + N] in bf16, n a multiple of 16.
struct Int8GemmArgs {
    const std::int8_t* a;       // [m rounded up to 16, padded_k]; rows beyond m are read, their results dropped
    const float* a_scales;      // [m]
    const std::int8_t* packed;  // gemm.h
    const float* w_scales;      // [n rounded up to 16]
    const std::int32_t* w_sums; // [n rounded up to 16]: sums of w over k
    const float* bias;          // [n], or null
    void* out;
    float* maxima;              // [m, n / 256 rounded up]: the largest number of each 256 outputs; or null: not wanted
    std::int64_t out_stride;
    std::int32_t m, n, padded_k;
    DType dtype;  // of out
    std::int32_t gate;
};

// out[m, n] = a[m, :] . w[n, :] + bias[n], all bf16 but the sums; with a gate as above
struct Bf16GemmArgs {
    const void* a;          // [m rounded up to 16, a_stride], zero from k to padded_k; rows beyond m are read, then dropped
    const void* packed;     // gemm.h
    const float* bias;      // [n], or null
    void* out;
    float* maxima;          // as above
    std::int64_t a_stride;  // elements from one row to the next, at least padded_k, and even
    std::int64_t out_stride;
    std::int32_t m, n, padded_k;
    DType dtype;  // of out
    std::int32_t gate;
};

// A step's chunks as the arrays that other kernels and the sampler read (layout.h).
struct LayoutArgs {
    const std::int64_t* rows;     // [num_seqs]: of each chunk, its request's row in the columns below
    const std::int64_t* starts;   // [num_seqs], tokens before this chunk
    const std::int64_t* lengths;  // [num_seqs], tokens of this chunk
    const std::int64_t* samples;  // [num_seqs], 0 or 1
    const std::int32_t* tables;             // columns by row: block tables, table_stride apart
    const std::int64_t* num_prompt_tokens;
    std::int64_t table_stride;
    std::int32_t* query_start;  // written: these five are those of BatchArgs
    std::int32_t* context_len;
    std::int32_t* block_tables;
    std::int32_t* slots;
    std::int64_t* positions;
    std::int32_t* logit_rows;     // written, for each chunk that samples: its last token,
    std::int64_t* sampling_rows;  // its row,
    std::int64_t* places;         // and how many output tokens its request has
    std::int32_t num_seqs;
    std::int32_t max_blocks;
    std::int32_t block_size;
    std::int32_t num_sampling;  // written; -1 where a chunk is longer than its block table
    std::int32_t highest_slot;  // written
};

// A token for each of num_rows requests, from logits [*, vocab]. Request i has its logits in row logit_rows[i], its sampling
// parameters in place rows[i] of the columns, and places[i] output tokens already.
struct SampleArgs {
    const void* logits;
    const float* maxima;             // [*, vocab / 256 rounded up], without NaN; or null: not known
    const std::int64_t* logit_rows;  // or null: row i
    const std::int64_t* rows;
    const std::int64_t* places;
    const float* temperature;        // columns; 0 is greedy
    const std::int64_t* top_k;
    const double* top_p;
    const float* min_p;
    const std::uint64_t* seed;
    std::int64_t* tokens;            // [num_rows], written
    std::int64_t stride;             // elements from one row of logits to the next
    std::int32_t num_rows;
    std::int32_t vocab;              // at most 2^19
    DType dtype;                     // f32 or bf16
};

// Reports on token_ids[i] in row logit_rows[i] of logits [*, vocab], with the num_top[i] likeliest tokens.
struct LogprobArgs {
    const void* logits;
    const std::int64_t* logit_rows;
    const std::int64_t* token_ids;
    const std::int64_t* num_top;
    double* logprobs;      // [num_rows], written
    std::int64_t* ranks;   // [num_rows], written
    std::int64_t* top_ids;  // [num_rows, most_top], of which num_top[i] are written
    double* top_logprobs;   // the same
    std::int64_t stride;
    std::int32_t num_rows;
    std::int32_t most_top;
    std::int32_t vocab;
    DType dtype;
};

// A kernel of the table, which takes its record and nothing else, and where that says how many rows there are (or null).
struct Call {
    void (*kernel)(const void*);
    const void* args;
    std::int32_t* num_rows;
};

// Kernels to run in this order, each on num_rows rows.
struct ProgramArgs {
    const Call* calls;
    std::int32_t num_calls;
    std::int32_t num_rows;
};

struct KernelTable {
    const char* isa;
    void (*kv_write)(const KvWriteArgs*);
    void (*attention)(const AttentionArgs*);
    void (*rotary)(const RotaryArgs*);
    void (*quantise)(const RowsArgs*);
    void (*rms_norm)(const NormArgs*);
    void (*gated)(const GatedArgs*);
    void (*int8_gemm)(const Int8GemmArgs*);
    void (*bf16_gemm)(const Bf16GemmArgs*);
    void (*sample)(const SampleArgs*);
    void (*logprobs)(const LogprobArgs*);
    void (*run)(const ProgramArgs*);
    void (*lay_out)(LayoutArgs*);
    void (*embed)(const EmbedArgs*);
    void (*add)(const AddArgs*);
};

// One per translation unit isa_*.cpp.
const KernelTable* portable_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();
const KernelTable* avx512bf16_kernels();
const KernelTable* amx_kernels();

}  // namespace evenflow
