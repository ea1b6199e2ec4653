// What a tile's rows need between the two products of attention, whatever the pool's element.
#pragma once

#include "activations.h"
#include "attention_ahead.h"
#include "partial_result.h"

namespace evenflow::EVENFLOW_ISA {

// The keys that each row sees, counted from the partition's first: first .. end - 1.
struct Limits {
    int first[ROW_TILE], end[ROW_TILE];
};

// The groups of which a row sees something.
struct GroupRange {
    int begin, end;
};
EVENFLOW_INLINE GroupRange seen_groups(const Limits& limits, int r, int groups) {
    const int begin = smaller(larger(limits.first[r], 0) / GROUP, groups);
    return {begin, larger(begin, smaller((limits.end[r] + GROUP - 1) / GROUP, groups))};
}

// Where a partition's groups of keys and values lie.
struct Groups {
    const std::uint32_t* keys[PARTITION_GROUPS];
    const std::uint32_t* values[PARTITION_GROUPS];

    template <class T>
    EVENFLOW_INLINE void take(const KvPool& pool, int g, std::uint8_t* chunk, int group) {
        keys[g] = reinterpret_cast<const std::uint32_t*>(pool.key_group<T>(chunk, group));
        values[g] = reinterpret_cast<const std::uint32_t*>(pool.value_group<T>(chunk, group));
    }
};

// The highest of what row r sees. Of a group that it sees a part of, the other scores are overwritten.
EVENFLOW_INLINE float mask(float* scores, const Limits& limits, int r, int groups) {
    const int first = limits.first[r], end = smaller(limits.end[r], groups * GROUP);
    const auto score = [&](int g) { return load(scores + g * GROUP); };
    F32 highest = splat(MASKED), other = splat(MASKED);
    const auto cut = [&](int g) {
        const F32 s = keep_range(score(g), first - g * GROUP, end - g * GROUP, splat(MASKED));
        store(scores + g * GROUP, s);
        highest = max(highest, s);
    };
    int g = larger(first, 0) / GROUP;
    if (first > g * GROUP && g * GROUP < end) cut(g++);
    for (; (g + 2) * GROUP <= end; g += 2) {
        const F32 a = score(g), b = score(g + 1);
        highest = max(highest, a);
        other = max(other, b);
    }
    for (; g * GROUP < end; ++g) cut(g);
    return reduce_max(max(highest, other));
}

}  // namespace evenflow::EVENFLOW_ISA
