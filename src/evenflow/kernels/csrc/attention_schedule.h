// How attention is cut: tiles of query rows, blocks and partitions of keys (attention.h says why), and what a thread takes.
#pragma once

#include "buffer.h"
#include "kv_pool.h"

namespace evenflow::EVENFLOW_ISA {

constexpr int ROW_TILE = 32;     // two matrix tiles, so that a tile of keys or values is read once for both
constexpr int KEY_GROUPS = 4;    // groups that are scored for all rows before the next are taken
constexpr int PAIR = 2 * GROUP;   // tokens whose values are multiplied at once
constexpr int PARTITION = 512;
constexpr int MAX_RUN = 8;        // units that a thread takes at a time
constexpr int PARTITION_GROUPS = PARTITION / GROUP;
// Rows of scores and of probabilities; a line more than they need, so that a tile's rows do not share the sets of a cache.
constexpr int SCORE_STRIDE = PARTITION + GROUP;
constexpr int P_STRIDE = PARTITION + PAIR;

struct Tile {
    int seq, kv_head;
    int row_begin, rows;          // within the sequence's rows, row = position_in_chunk * group + head_in_group
    int key_begin, key_end;       // keys that some row of the tile sees
    int partial;                  // where the first of its partial results is kept, or -1: the tile is done in one go
    int first_partition() const { return key_begin / PARTITION; }
    int last_partition() const { return (key_end - 1) / PARTITION; }
};

// What one thread does at a time: an uncut tile, or one partition of a cut one.
struct Unit {
    int tile, partition;
};

struct Schedule {
    Buffer<Tile> tiles;
    Buffer<Unit> units, small;
    Buffer<float> partials;
};

template <class N>
EVENFLOW_INLINE N larger(N a, N b) {
    return a > b ? a : b;
}
template <class N>
EVENFLOW_INLINE N smaller(N a, N b) {
    return a < b ? a : b;
}

inline Schedule& this_threads_schedule() {
    static thread_local Schedule schedule;
    return schedule;
}

}  // namespace evenflow::EVENFLOW_ISA
