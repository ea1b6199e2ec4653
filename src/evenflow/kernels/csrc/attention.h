// Paged attention of a mixed batch: prefill chunks and decodes are the same thing, rows of queries over cached keys.
//
// A tile is up to ROW_TILE query rows of one sequence that share a KV head: (position, head of the group) in order, so
// a decode is one short tile and a key is read once for all rows of a tile. A tile takes its keys in partitions, each in
// three passes: all scores, all exponentials (against the maximum of the partition), all values. Partial results are
// merged in order, as in an online softmax (Milakov and Gimelshein, 2018):
//
//     key position   0 ........ 511 | 512 ....... 1023 | 1024 ... end      partitions: may run on different cores
//
// Passes over hundreds of keys rather than one key block after the other: no pass waits for the last one's results key by
// key, and the output stays in registers until a partition is done.
//
// Partitions lie at fixed absolute positions and every row is masked by its own, so what a row computes depends on its query
// and its keys alone: not on the chunk it came in, the rest of the batch, or the number of threads. Cutting the work is
// therefore free to follow the load. Exponentials are of base 2; scores are scaled by log2(e).
#pragma once

#include "attention_batch.h"
#include "attention_tile.h"
#include "key_block.h"

#if defined(__AMX_BF16__)
#include "attention_amx.h"
#endif

namespace evenflow::EVENFLOW_ISA {

// The pool's element decides what is multiplied, and with what; int8 is widened to bf16, which holds it exactly, a key block
// at a time.
template <class T>
struct ProductsOf {
    using Element = bf16;
#if defined(__AMX_BF16__)
    using Tiles = AmxTiles;
#else
    using Tiles = VectorTiles<PairDot>;
#endif
};
template <>
struct ProductsOf<float> {
    using Element = float;
    using Tiles = VectorTiles<FloatDot>;
};

template <class T>
class Attention : AttentionBatch {
    using Element = typename ProductsOf<T>::Element;
    using Tiles = typename ProductsOf<T>::Tiles;
    static constexpr int EXP_DEGREE = sizeof(Element) == 4 ? 6 : 4;

    // Everything of one tile and partition that does not outlive it.
    struct Workspace {
        alignas(64) Element q[ROW_TILE * MAX_HEAD_DIM];
        alignas(64) float scores[ROW_TILE * SCORE_STRIDE];
        alignas(64) Element p[ROW_TILE * P_STRIDE];
        int first[ROW_TILE], end[ROW_TILE];  // the keys that a row sees, from the partition's first
        KeySource<T> source;
    };

    const float scale_log2;

   public:
    explicit Attention(const AttentionArgs& a) : AttentionBatch(a), scale_log2(a.scale * 1.44269504088896341f) {}

    void run() {
        plan();
        const Buffer<Tile>& tiles = schedule.tiles;
        const Buffer<Unit>& units = schedule.units;
        const int num_units = int(units.size()), num_tiles = int(tiles.size());
#pragma omp parallel if (num_units > 1)
        {
            Tiles products;
#pragma omp for schedule(dynamic, 1)
            for (int i = 0; i < num_units; ++i) {
                const Tile& tile = tiles[units[i].tile];
                if (tile.partial < 0) {
                    whole(tile, products);
                } else {
                    Softmax part = partial(tile, units[i].partition);
                    attend(tile, units[i].partition, part, products);
                }
            }
#pragma omp for schedule(dynamic, 1)
            for (int i = 0; i < num_tiles; ++i)
                if (tiles[i].partial >= 0) gather(tiles[i]);
        }
    }

   private:
    void whole(const Tile& tile, Tiles& products) const {
        alignas(64) float total_memory[ROW_TILE * (MAX_HEAD_DIM + 1 + LANES)];
        alignas(64) float part_memory[ROW_TILE * (MAX_HEAD_DIM + 1 + LANES)];
        Softmax total(total_memory, dim), part(part_memory, dim);
        attend(tile, tile.first_partition(), total, products);
        for (int p = tile.first_partition() + 1; p <= tile.last_partition(); ++p) {
            attend(tile, p, part, products);
            merge(total, part, tile.rows, dim);
        }
        write(tile, total);
    }

    // One partition of a tile's keys.
    void attend(const Tile& tile, int partition, Softmax& state, [[maybe_unused]] Tiles& products) const {
        Workspace w;
        const int begin = larger(partition * PARTITION, tile.key_begin / PAIR * PAIR);
        const int end = smaller((partition + 1) * PARTITION, tile.key_end);
        const int groups = (end - begin + GROUP - 1) / GROUP;
        pack_queries(tile, w.q);
        find_limits(tile, begin, w.first, w.end);
        const std::uint32_t* lines[PARTITION_GROUPS];
        for (int g = 0; g < groups; g += KEY_GROUPS) {
            const int count = smaller(KEY_GROUPS, groups - g);
            for (int i = 0; i < count; ++i) {
                const Place at = place(tile, begin + (g + i) * GROUP);
                lines[i] = w.source.keys(pool, g + i, i, at.chunk, at.group);
            }
            products.scores(w.q, tile.rows, lines, count, dim, w.scores + g * GROUP);
        }
        soften(tile.rows, groups, w, state);
        for (int g = 0; g < groups; g += KeySource<T>::VALUE_GROUPS) {
            const int count = smaller(KeySource<T>::VALUE_GROUPS, groups - g);
            for (int i = 0; i < count; ++i) {
                const Place at = place(tile, begin + (g + i) * GROUP);
                lines[i] = w.source.values(pool, i, at.chunk, at.group);
            }
            if (count % 2 != 0) w.source.absent(pool, count);
            products.values(w.p + g * GROUP, tile.rows, lines, count, w.source.paired(pool), dim, g == 0, state.acc);
        }
    }

    // Scores to probabilities, relative to each row's maximum.
    void soften(int rows, int groups, Workspace& w, Softmax& state) const {
        for (int r = 0; r < rows; ++r) state.max[r] = mask_row(r, groups, w);
        for (int r = rows; r < ROW_TILE; ++r) state.max[r] = INITIAL_MAX;
        for (int r = 0; r < rows; ++r) store(state.sum + r * LANES, exponentials(r, groups, state.max[r], w));
    }

    // The scaled maximum of what a row sees; what it must not see in a group that it sees a part of is overwritten.
    EVENFLOW_INLINE float mask_row(int r, int groups, Workspace& w) const {
        float* scores = w.scores + r * SCORE_STRIDE;
        const int first = w.first[r], end = smaller(w.end[r], groups * GROUP);
        F32 highest = splat(MASKED), other = splat(MASKED);
        const auto cut = [&](int g) {
            const F32 s = keep_range(score(scores, g, w), first - g * GROUP, end - g * GROUP, splat(MASKED));
            store(scores + g * GROUP, s);
            highest = max(highest, s);
        };
        int g = larger(first, 0) / GROUP;
        if (first > g * GROUP && g * GROUP < end) cut(g++);
        for (; (g + 2) * GROUP <= end; g += 2) {
            const F32 a = score(scores, g, w), b = score(scores, g + 1, w);
            if constexpr (KeySource<T>::SCALED) store(scores + g * GROUP, a), store(scores + (g + 1) * GROUP, b);
            highest = max(highest, a);
            other = max(other, b);
        }
        for (; g * GROUP < end; ++g) cut(g);
        return larger(INITIAL_MAX, reduce_max(max(highest, other)) * scale_log2);
    }

    EVENFLOW_INLINE F32 score(const float* scores, int g, const Workspace& w) const {
        if constexpr (KeySource<T>::SCALED) return load(scores + g * GROUP) * load(w.source.key_scales + g * GROUP);
        return load(scores + g * GROUP);
    }

    // Writes the probabilities of a row and returns their sums. Groups that it sees nothing of get zeros, and
    // so does the second of the last pair where a sequence has but the first.
    EVENFLOW_INLINE F32 exponentials(int r, int groups, float max, Workspace& w) const {
        const float* scores = w.scores + r * SCORE_STRIDE;
        Element* p = w.p + r * P_STRIDE;
        const int begin = smaller(larger(w.first[r], 0) / GROUP, groups);
        const int end = larger(begin, smaller((w.end[r] + GROUP - 1) / GROUP, groups));
        const F32 top = splat(-max);
        F32 sum = splat(0.0f);
        for (int g = 0; g < begin; ++g) store(p + g * GROUP, splat(0.0f));
        for (int g = begin; g < end; ++g) {
            const F32 e = exp2<EXP_DEGREE>(fma(load(scores + g * GROUP), splat(scale_log2), top));
            sum = sum + e;
            if constexpr (KeySource<T>::SCALED)
                store(p + g * GROUP, e * load(w.source.value_scales + g * GROUP));
            else
                store(p + g * GROUP, e);
        }
        for (int g = end; g < groups + groups % 2; ++g) store(p + g * GROUP, splat(0.0f));
        return sum;
    }

    struct Place {
        std::uint8_t* chunk;
        int group;
    };
    Place place(const Tile& tile, int key) const {
        const std::int32_t* table = args.block_tables + std::int64_t(tile.seq) * args.max_blocks;
        return {pool.chunk(table[key / pool.block_size], tile.kv_head), key % pool.block_size / GROUP};
    }

    void pack_queries(const Tile& tile, Element* q) const {
        alignas(64) float row[MAX_HEAD_DIM];
        for (int r = 0; r < tile.rows; ++r) {
            read_row(args.query, offset(tile, r, args.query_stride), args.dtype, pool.head_dim, row);
            convert_row(row, dim, q + r * dim);
        }
    }
};

inline void attention(const AttentionArgs* args) {
    const DType dtype = args->pool.dtype;
#if defined(EVENFLOW_UNIT_BELOW)
    // What these products bring nothing to is compiled there already, and has the same bits.
    if (dtype == DType::f32 || !ProductsOf<bf16>::Tiles::take(KvPool(args->pool).padded_dim))
        return EVENFLOW_UNIT_BELOW()->attention(args);
#else
    if (dtype == DType::f32) return Attention<float>(*args).run();
#endif
    if (dtype == DType::bf16) return Attention<bf16>(*args).run();
    Attention<std::int8_t>(*args).run();
}

}  // namespace evenflow::EVENFLOW_ISA
