// From a fused q, k, v projection to what attention needs: norm of each head (where the model has one), rotation, KV write.
//
// A head's halves turn against each other: (a, b) -> (a cos - b sin, b cos + a sin). Queries stay where they are.
#pragma once

#include "kv_write.h"

namespace evenflow::EVENFLOW_ISA {

// Norm and rotation of one head in floats; `head` counts queries, then keys: the order of qk_norm's rows.
inline void turn_head(const RotaryArgs& args, int token, int head, float* x) {
    const int dim = args.pool.head_dim, half = dim / 2;
    if (args.qk_norm != nullptr) {
        const float* weight = args.qk_norm + std::int64_t(head) * dim;
        const F32 factor = splat(inverse_rms(x, dim, args.eps));
        for (int d = 0; d < dim; d += LANES) store(x + d, load(x + d) * factor * load_first(weight + d, dim - d));
    }
    const std::int64_t angle = args.by_token ? token : args.batch->positions[token];
    const float* cos = args.cos + angle * half;
    const float* sin = args.sin + angle * half;
    for (int d = 0; d < half; d += LANES) {
        const int left = half - d;
        const F32 a = load_first(x + d, left), b = load_first(x + half + d, left);
        const F32 c = load_first(cos + d, left), s = load_first(sin + d, left);
        store_first(x + d, a * c - b * s, left);
        store_first(x + half + d, fma(a, s, b * c), left);
    }
}

inline void rotary(const RotaryArgs* record) {
    const RotaryArgs& args = *record;
    const KvPool pool(args.pool);
    const PutToken put = put_token_of(args.pool.dtype);
    const std::int32_t* slots = args.batch->slots;
    const int num_tokens = args.batch->num_tokens;
    clear_fresh_blocks(pool, slots, num_tokens);
    const int dim = pool.head_dim, kv_heads = pool.num_kv_heads, heads = args.num_heads;
    share_rows(num_tokens, num_tokens >= PARALLEL_TOKENS, [&](int token) {
        alignas(64) float x[MAX_HEAD_DIM + LANES], value[MAX_HEAD_DIM + LANES];
        const std::int64_t row = args.stride * token;
        for (int head = 0; head < heads + kv_heads; ++head) {
            read_row(args.qkv, row + head * dim, args.dtype, dim, x);
            turn_head(args, token, head, x);
            if (head < heads) {
                write_row(args.qkv, row + head * dim, args.dtype, dim, x);
                continue;
            }
            read_row(args.qkv, row + (head + kv_heads) * dim, args.dtype, dim, value);
            put(pool, slots[token], head - heads, x, value);
        }
    });
}

}  // namespace evenflow::EVENFLOW_ISA
