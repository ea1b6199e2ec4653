// Log-probabilities as reports: of a token, its rank, and the likeliest tokens.
//
//     logprob(t) = l(t) - (peak + log(sum of masses))
//     rank(t)    = 1 + how many tokens come before t, larger logits first, the lower id first among equals
//
// executors/torch/logprobs.py has the same in numpy, bit for bit.
#pragma once

#include "race.h"
#include "vocab_row.h"

namespace evenflow::EVENFLOW_ISA {

constexpr double VERY_UNLIKELY = -9999.0;

// Larger logits first, the lower id first among equals.
inline void sort_by_value(Candidates& tokens) {
    for (int i = 1; i < tokens.size(); ++i) {
        const float value = tokens.values[i];
        const std::int32_t id = tokens.ids[i];
        int at = i;
        for (; at > 0 && tokens.values[at - 1] < value; --at)
            tokens.values[at] = tokens.values[at - 1], tokens.ids[at] = tokens.ids[at - 1];
        tokens.values[at] = value, tokens.ids[at] = id;
    }
}

inline void report(const LogprobArgs& args, int i, const VocabRow<float>& row) {
    static thread_local Candidates top;
    alignas(64) float weights[VOCAB_BLOCK];
    double mass = 0.0;
    for (int b = 0; b < row.blocks(); ++b) mass += weigh(row.logits + row.begin(b), row.count(b), {row.peak, 1.0f}, weights).mass;
    const double log_total = double(row.peak) + natural_log(mass);
    const auto logprob = [=](float logit) {
        const double value = double(logit) - log_total;
        return value > VERY_UNLIKELY ? value : VERY_UNLIKELY;
    };

    const std::int64_t token = args.token_ids[i];
    const float value = row.logits[token];
    std::int32_t rank = 1;
#pragma omp simd reduction(+ : rank)
    for (int t = 0; t < row.vocab; ++t) rank += row.logits[t] > value;
    for (int t = 0; t < token; ++t) rank += row.logits[t] == value;
    args.logprobs[i] = logprob(value);
    args.ranks[i] = rank;

    const int wanted = int(args.num_top[i]) < row.vocab ? int(args.num_top[i]) : row.vocab;
    const float bound = wanted > 0 ? bound_of_largest(row.maxima, row.blocks(), wanted) : INFINITY;
    top.clear();
    for (int b = 0; b < row.blocks(); ++b)
        if (row.maxima[b] >= bound) top.add(row.begin(b), row.logits + row.begin(b), row.count(b), bound);
    top.keep_largest(wanted);
    sort_by_value(top);
    for (int t = 0; t < top.size(); ++t) {
        args.top_ids[i * args.most_top + t] = top.ids[t];
        args.top_logprobs[i * args.most_top + t] = logprob(top.values[t]);
    }
}

template <class T>
void report_rows(const LogprobArgs& args) {
#pragma omp parallel for schedule(dynamic, 1) if (args.num_rows > 1)
    for (int i = 0; i < args.num_rows; ++i) {
        static thread_local Buffer<float> finite, maxima;
        const T* logits = static_cast<const T*>(args.logits) + args.logit_rows[i] * args.stride;
        const float* numbers = made_finite(logits, args.vocab, finite);
        find_maxima(numbers, args.vocab, maxima);
        report(args, i, VocabRow<float>(numbers, maxima.data(), args.vocab));
    }
}

inline void logprobs(const LogprobArgs* args) {
    if (args->dtype == DType::f32) return report_rows<float>(*args);
    report_rows<bf16>(*args);
}

}  // namespace evenflow::EVENFLOW_ISA
