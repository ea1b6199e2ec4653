// A row over the vocabulary, seen in blocks of 256 tokens (executors/torch/vocab_blocks.py has the idea).
//
//     row      | 0 .. 255 | 256 .. 511 | ... | last block, perhaps shorter |
//     maxima   |    m0    |     m1     | ... |             mN              |      NaN left out
#pragma once

#include <cfloat>

#include "gemm.h"
#include "selection.h"

namespace evenflow::EVENFLOW_ISA {

template <class T>
struct VocabRow {
    const T* logits;
    const float* maxima;
    int vocab;
    float peak;

    VocabRow(const T* logits_, const float* maxima_, int vocab_) : logits(logits_), maxima(maxima_), vocab(vocab_) {
        peak = -INFINITY;
        for (int b = 0; b < blocks(); ++b) peak = maxima[b] > peak ? maxima[b] : peak;
    }
    int blocks() const { return (vocab + VOCAB_BLOCK - 1) / VOCAB_BLOCK; }
    static int begin(int block) { return block * VOCAB_BLOCK; }
    int count(int block) const { return vocab - begin(block) < VOCAB_BLOCK ? vocab - begin(block) : VOCAB_BLOCK; }

    // The lowest id of the largest.
    int argmax() const {
        for (int b = 0; b < blocks(); ++b) {
            if (maxima[b] != peak) continue;
            for (int i = begin(b); i < begin(b) + count(b); ++i)
                if (to_float(logits[i]) == peak) return i;
        }
        return 0;
    }
};

template <class T>
void find_maxima(const T* logits, int vocab, Buffer<float>& maxima) {
    maxima.clear();
    for (int begin = 0; begin < vocab; begin += VOCAB_BLOCK)
        maxima.push(largest_of(logits + begin, vocab - begin < VOCAB_BLOCK ? vocab - begin : VOCAB_BLOCK));
}

// The bound that keeps everyone of the `count` largest of a row: so many of its blocks reach it, each with a token at least.
inline float bound_of_largest(const float* maxima, int blocks, int count) {
    return count <= blocks ? value_at(count_cut(maxima, blocks, count)) : -INFINITY;
}

// What stands in for a row that a model has spoiled: NaN never wins, infinity is merely very large, and a row with nothing
// left gives token 0.
template <class T>
const float* made_finite(const T* logits, int vocab, Buffer<float>& memory) {
    memory.resize(std::size_t(vocab) + LANES);
    bool any = false;
    for (int i = 0; i < vocab; ++i) {
        const float x = to_float(logits[i]);
        memory[i] = x != x ? -INFINITY : x > FLT_MAX ? FLT_MAX : x;
        any |= memory[i] >= -FLT_MAX;
    }
    if (!any) memory[0] = 0.0f;
    return memory.data();
}

// Call body(row) with row `row` of `logits`, made finite if its largest number is not; `maxima` may be null.
template <class T, class Body>
void with_row(const T* logits, const float* maxima, int vocab, Body&& body) {
    static thread_local Buffer<float> found, finite;
    if (maxima == nullptr) {
        find_maxima(logits, vocab, found);
        maxima = found.data();
    }
    const VocabRow<T> row(logits, maxima, vocab);
    if (row.peak >= -FLT_MAX && row.peak <= FLT_MAX) return body(row);
    const float* replaced = made_finite(logits, vocab, finite);
    find_maxima(replaced, vocab, found);
    body(VocabRow<float>(replaced, found.data(), vocab));
}

}  // namespace evenflow::EVENFLOW_ISA
