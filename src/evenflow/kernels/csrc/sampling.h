// From logits to tokens, each row for itself: the arg-max, or a draw from what min_p, top_k and top_p leave.
//
// executors/torch/sampling.py says what the steps mean and is the same in numpy, bit for bit. A row without filters has a
// block of 256 tokens drawn by their masses, then a token of it; so it is read once, and one block again. Filtered rows draw
// among the tokens that are left, which are found by the blocks that can have one.
#pragma once

#include "race.h"
#include "vocab_row.h"

namespace evenflow::EVENFLOW_ISA {

struct Filters {
    std::int64_t top_k;  // 0: off
    double top_p;        // 1: off
    float min_p;         // 0: off
    bool any() const { return top_k > 0 || top_p < 1.0 || min_p > 0.0f; }
};

// One row's draw. It lives in memory of its thread, which the next row uses again.
class Draw {
    Buffer<float> weights, heaviest;
    Buffer<double> masses;
    Candidates left;

   public:
    template <class T>
    int plain(const VocabRow<T>& row, Softness by, std::uint64_t track) {
        alignas(64) float inside[VOCAB_BLOCK];
        masses.clear();
        for (int b = 0; b < row.blocks(); ++b) masses.push(weigh(row.logits + row.begin(b), row.count(b), by, inside).mass);
        const int block = winner(track, BLOCK_STEP, row.blocks(), [](int b) { return b; }, [&](int b) { return masses[b]; });
        const int begin = row.begin(block), count = row.count(block);
        weigh(row.logits + begin, count, by, inside);
        return begin + winner(track, TOKEN_STEP, count, [=](int i) { return begin + i; }, [&](int i) { return inside[i]; });
    }

    template <class T>
    int filtered(const VocabRow<T>& row, Softness by, std::uint64_t track, const Filters& filters) {
        weights.resize(std::size_t(row.vocab) + LANES);
        heaviest.clear();
        double total = 0.0;
        for (int b = 0; b < row.blocks(); ++b) {
            const Weighed block = weigh(row.logits + row.begin(b), row.count(b), by, weights.data() + row.begin(b));
            heaviest.push(block.heaviest);
            total += block.mass;
        }
        filter(row, total, filters);
        const auto id = [&](int i) { return left.ids[i]; };
        return left.ids[winner(track, TOKEN_STEP, left.size(), id, [&](int i) { return left.values[i]; })];
    }

   private:
    template <class T>
    void filter(const VocabRow<T>& row, double total, const Filters& filters) {
        if (filters.top_k > 0) {
            const int count = filters.top_k < row.vocab ? int(filters.top_k) : row.vocab;
            find(row, bound_of_largest(heaviest.data(), row.blocks(), count));
            left.keep_largest(count);
            if (filters.min_p > 0.0f) left.keep_if([&](float weight) { return weight >= filters.min_p; });
        } else if (filters.min_p > 0.0f) {
            find(row, filters.min_p);
        } else {
            find_mass(row, filters.top_p * total);
            return left.keep(mass_cut(left.values.data(), left.size(), filters.top_p * total));
        }
        if (filters.top_p < 1.0) left.keep(mass_cut(left.values.data(), left.size(), filters.top_p * mass_left()));
    }

    template <class T>
    void find(const VocabRow<T>& row, float bound) {
        left.clear();
        for (int b = 0; b < row.blocks(); ++b)
            if (heaviest[b] >= bound) left.add(row.begin(b), weights.data() + row.begin(b), row.count(b), bound);
    }

    // Tokens that weigh at least `mass`, and among them everyone as heavy as the lightest of them.
    template <class T>
    void find_mass(const VocabRow<T>& row, double mass) {
        for (float bound = 0x1p-5f; bound > 0x1p-40f; bound *= 0x1p-5f) {
            find(row, bound);
            if (mass_left() >= mass) return;
        }
        find(row, 0.0f);
    }

    double mass_left() const {
        double mass = 0.0;
        for (int i = 0; i < left.size(); ++i) mass += mass_of(left.values[i]);
        return mass;
    }
};

template <class T>
std::int64_t sample_row(const SampleArgs& args, int i, const VocabRow<T>& row) {
    const std::int64_t at = args.rows[i];
    const float temperature = args.temperature[at];
    if (temperature == 0.0f) return row.argmax();
    static thread_local Draw draw;
    const Filters filters{args.top_k[at], args.top_p[at], args.min_p[at]};
    const Softness by{row.peak, 1.0f / temperature};
    const std::uint64_t track = track_of(args.seed[at], args.places[i]);
    return filters.any() ? draw.filtered(row, by, track, filters) : draw.plain(row, by, track);
}

template <class T>
void sample_rows(const SampleArgs& args) {
    const int blocks = (args.vocab + VOCAB_BLOCK - 1) / VOCAB_BLOCK;
#pragma omp parallel for schedule(dynamic, 1) if (args.num_rows > 1)
    for (int i = 0; i < args.num_rows; ++i) {
        const std::int64_t at = args.logit_rows == nullptr ? i : args.logit_rows[i];
        const float* maxima = args.maxima == nullptr ? nullptr : args.maxima + at * blocks;
        with_row(static_cast<const T*>(args.logits) + at * args.stride, maxima, args.vocab,
                 [&](const auto& row) { args.tokens[i] = sample_row(args, i, row); });
    }
}

inline void sample(const SampleArgs* args) {
    if (args->dtype == DType::f32) return sample_rows<float>(*args);
    sample_rows<bf16>(*args);
}

}  // namespace evenflow::EVENFLOW_ISA
