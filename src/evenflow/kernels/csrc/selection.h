// Where a row of numbers is cut: the k-th largest, or the fewest that hold a mass, without sorting them.
//
// A float's bits, the sign bit set right, order as an integer. Three rounds look at 11, 11 and 10 bits of it: count (or weigh)
// what falls into each bin, find the bin in which the cut lies, and look into that one. Ties go to the lower token id.
#pragma once

#include "weights.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int KEY_BITS[] = {11, 11, 10};

EVENFLOW_INLINE std::uint32_t order_of(float x) {
    std::uint32_t bits;
    x = x + 0.0f;  // the two zeros are equal
    std::memcpy(&bits, &x, 4);
    return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}

// Everyone above `order` stays, and of those who are at it the first `equals`.
struct Cut {
    std::uint32_t order;
    int equals;
};

// The cut through `n` values at which the sum of `share(value)`, from the largest down, first reaches `wanted`. Shares are
// equal where values are, and their sums exact; `Sum` is a number or a mass.
template <class Sum, class Share>
Cut cut_at(const float* values, int n, Sum wanted, const Share& share) {
    static thread_local Buffer<Sum> memory;
    memory.reserve(2048);
    Sum* bins = memory.data();
    std::uint32_t prefix = 0;
    int low = 32;  // bits below the prefix
    Sum above = 0;
    for (const int width : KEY_BITS) {
        const int shift = low - width, size = 1 << width;
        for (int b = 0; b < size; ++b) bins[b] = 0;
        for (int i = 0; i < n; ++i) {
            const std::uint32_t order = order_of(values[i]);
            if (low == 32 || order >> low == prefix) bins[order >> shift & std::uint32_t(size - 1)] += share(values[i]);
        }
        int bin = size - 1;
        for (; bin > 0 && above + bins[bin] < wanted; --bin) above += bins[bin];
        prefix = low == 32 ? std::uint32_t(bin) : prefix << width | std::uint32_t(bin);
        low = shift;
    }
    int equals = 0;
    for (int i = 0; i < n && above < wanted; ++i)
        if (order_of(values[i]) == prefix) above += share(values[i]), ++equals;
    return {prefix, equals};
}

inline Cut count_cut(const float* values, int n, int count) {
    return cut_at<int>(values, n, count, [](float) { return 1; });
}
inline Cut mass_cut(const float* values, int n, double mass) {
    return cut_at<double>(values, n, mass, mass_of);
}

inline float value_at(Cut cut) {
    const std::uint32_t bits = cut.order ^ (cut.order >> 31 ? 0x80000000u : 0xFFFFFFFFu);
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}

// Tokens of a row with their values, ids ascending.
struct Candidates {
    Buffer<std::int32_t> ids;
    Buffer<float> values;

    int size() const { return int(ids.size()); }
    void clear() { resize(0); }
    void resize(int size) { ids.resize(std::size_t(size)), values.resize(std::size_t(size)); }

    // Those of `count` values that are at least `bound`; the first has the id `id`.
    template <class T>
    void add(int id, const T* from, int count, float bound) {
        int n = size();
        resize(n + count);
        for (int i = 0; i < count; ++i) {
            const float value = to_float(from[i]);
            ids[n] = id + i, values[n] = value;
            n += value >= bound;
        }
        resize(n);
    }

    template <class Stays>
    void keep_if(Stays stays) {
        int kept = 0;
        for (int i = 0; i < size(); ++i)
            if (stays(values[i])) ids[kept] = ids[i], values[kept] = values[i], ++kept;
        resize(kept);
    }
    void keep(Cut cut) {
        keep_if([&, left = cut.equals](float value) mutable {
            const std::uint32_t order = order_of(value);
            return order > cut.order || (order == cut.order && left-- > 0);
        });
    }
    // The `count` largest.
    void keep_largest(int count) {
        if (count < size()) keep(count_cut(values.data(), size(), count));
    }
};

}  // namespace evenflow::EVENFLOW_ISA
