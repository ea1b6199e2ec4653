// From a fused q, k, v projection to what attention needs: norm of each head (where the model has one), rotation, KV write.
//
// A head's halves turn against each other: (a, b) -> (a cos - b sin, b cos + a sin). Queries stay where they are.
#pragma once

#include "kv_write.h"

namespace evenflow::EVENFLOW_ISA {

template <class Act>
struct HeadRotation {
    const RotaryArgs& args;
    int dim;

    // `head` counts queries, then keys: the order of qk_norm's rows.
    void operator()(Act* x, int token, int head) const {
        alignas(64) float row[MAX_HEAD_DIM + LANES];
        for (int d = 0; d < dim; d += LANES) store(row + d, load_first(x + d, dim - d));
        if (args.qk_norm != nullptr) norm(row, args.qk_norm + std::int64_t(head) * dim);
        const int half = dim / 2;
        const float* cos = args.cos + std::int64_t(token) * half;
        const float* sin = args.sin + std::int64_t(token) * half;
        for (int d = 0; d < half; d += LANES) {
            const int left = half - d;
            const F32 a = load_first(row + d, left), b = load_first(row + half + d, left);
            const F32 c = load_first(cos + d, left), s = load_first(sin + d, left);
            store_first(x + d, a * c - b * s, left);
            store_first(x + half + d, fma(a, s, b * c), left);
        }
    }

    void norm(float* row, const float* weight) const {
        F32 squares = splat(0.0f);
        for (int d = 0; d < dim; d += LANES) squares = fma(load(row + d), load(row + d), squares);
        const F32 factor = splat(1.0f / std::sqrt(reduce_add(squares) / float(dim) + args.eps));
        for (int d = 0; d < dim; d += LANES) store(row + d, load(row + d) * factor * load_first(weight + d, dim - d));
    }
};

template <class T, class Act>
void rotate_and_write(const RotaryArgs& args) {
    const KvPool<T> pool(args.pool);
    clear_fresh_blocks(pool, args.slots, args.num_tokens);
    const int dim = pool.head_dim, kv_heads = pool.num_kv_heads;
    const HeadRotation<Act> rotate{args, dim};
#pragma omp parallel for schedule(static) if (args.num_tokens >= 16)
    for (int token = 0; token < args.num_tokens; ++token) {
        Act* q = static_cast<Act*>(args.qkv) + args.stride * token;
        Act* k = q + args.num_heads * dim;
        const Act* v = k + kv_heads * dim;
        for (int head = 0; head < args.num_heads + kv_heads; ++head) rotate(q + head * dim, token, head);
        for (int head = 0; head < kv_heads; ++head)
            put_token(pool, args.slots[token], head, k + head * dim, v + head * dim);
    }
}

template <class T>
void rotary_of(const RotaryArgs& args) {
    if (args.dtype == DType::f32) return rotate_and_write<T, float>(args);
    rotate_and_write<T, bf16>(args);
}

inline void rotary(const RotaryArgs* args) {
    switch (args->pool.dtype) {
        case DType::f32: return rotary_of<float>(*args);
        case DType::bf16: return rotary_of<bf16>(*args);
        case DType::i8: return rotary_of<std::int8_t>(*args);
    }
}

}  // namespace evenflow::EVENFLOW_ISA
