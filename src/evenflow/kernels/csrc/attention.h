// Paged attention of a mixed batch: prefill chunks and decodes are the same thing, rows of queries over cached keys.
//
// A tile is up to ROW_TILE query rows of one sequence that share a KV head: (position, head of the group) in order, so
// a decode is one short tile and a key block is read once for all rows of a tile. A tile walks its keys in blocks of
// KEY_BLOCK with an online softmax in fp32 (Milakov and Gimelshein, 2018), within partitions of PARTITION keys whose
// partial results are then merged in order:
//
//     key position   0 ........ 511 | 512 ....... 1023 | 1024 ... end      partitions: may run on different cores
//                    [64][64] [64]    [64][64] [64]      [64] [..          key blocks: one softmax update each
//
// Blocks and partitions lie at fixed absolute positions and every row is masked by its own, so what a row computes depends
// on its query and its keys alone: not on the chunk it came in, the rest of the batch, or the number of threads. (A key
// block that is masked out for a row multiplies by 1 and adds 0.) Cutting the work is therefore free to follow the load.
// Exponentials are of base 2; scores are scaled by log2(e).
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

    // Everything of one tile and key block that does not outlive it.
    struct Workspace {
        alignas(64) Element q[ROW_TILE * MAX_HEAD_DIM];
        alignas(64) float scores[ROW_TILE * KEY_BLOCK];
        alignas(64) Element p[ROW_TILE * KEY_BLOCK];
        alignas(64) float sums[ROW_TILE * LANES];
        float top[ROW_TILE], alpha[ROW_TILE];
        int first[ROW_TILE], end[ROW_TILE];
        KeyBlock<T> block;
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
        total.clear(tile.rows, dim);
        for (int p = tile.first_partition(); p <= tile.last_partition(); ++p) {
            attend(tile, p, part, products);
            merge(total, part, tile.rows, dim);
        }
        write(tile, total);
    }

    // One partition of a tile's keys.
    void attend(const Tile& tile, int partition, Softmax& state, [[maybe_unused]] Tiles& products) const {
        Workspace w;
        pack_queries(tile, w.q);
        find_limits(tile, w.first, w.end);
        state.clear(tile.rows, dim);
        const int begin = larger(partition * PARTITION, tile.key_begin / KEY_BLOCK * KEY_BLOCK);
        const int end = smaller((partition + 1) * PARTITION, tile.key_end);
        for (int key = begin; key < end; key += KEY_BLOCK) {
            const int groups = smaller(KEY_GROUPS, (end - key + GROUP - 1) / GROUP);
            find_block(tile, key, groups, w.block);
            products.scores(w.q, tile.rows, w.block.keys, groups, dim, w.scores);
            soften(tile.rows, key, w, state);
            products.values(w.p, tile.rows, w.block.values, groups, w.block.paired(pool), dim, w.alpha, state.acc);
        }
    }

    // Scores to probabilities, relative to the running maximum of each row; alpha is what its older results shrink by.
    void soften(int rows, int key, Workspace& w, Softmax& state) const {
        for (int r = rows; r < ROW_TILE; ++r) w.top[r] = INITIAL_MAX;
        for (int r = 0; r < rows; ++r) soften_row(r, key, w, state);
        store(w.alpha, exp2<6>(load(state.max) - load(w.top)));
        store(state.max, load(w.top));
        for (int r = 0; r < rows; ++r) {
            float* sum = state.sum + r * LANES;
            store(sum, fma(load(sum), splat(w.alpha[r]), load(w.sums + r * LANES)));
        }
    }

    EVENFLOW_INLINE void soften_row(int r, int key, Workspace& w, const Softmax& state) const {
        const float* scores = w.scores + r * KEY_BLOCK;
        F32 s[KEY_GROUPS];
        unrolled<KEY_GROUPS>([&](auto g) {
            s[g] = load(scores + g * GROUP);
            if constexpr (KeyBlock<T>::SCALED) s[g] = s[g] * load(w.block.key_scales + g * GROUP);
        });
        const int begin = w.first[r] - key, end = w.end[r] - key;
        if (begin > 0 || end < KEY_BLOCK)
            unrolled<KEY_GROUPS>([&](auto g) { s[g] = keep_range(s[g], begin - g * GROUP, end - g * GROUP, splat(MASKED)); });
        const F32 highest = max(max(s[0], s[1]), max(s[2], s[3]));
        const float top = larger(state.max[r], reduce_max(highest) * scale_log2);
        w.top[r] = top;
        F32 sum = splat(0.0f);
        unrolled<KEY_GROUPS>([&](auto g) {
            const F32 p = exp2<EXP_DEGREE>(fma(s[g], splat(scale_log2), splat(-top)));
            sum = sum + p;
            if constexpr (KeyBlock<T>::SCALED)
                store(w.p + r * KEY_BLOCK + g * GROUP, p * load(w.block.value_scales + g * GROUP));
            else
                store(w.p + r * KEY_BLOCK + g * GROUP, p);
        });
        store(w.sums + r * LANES, sum);
    }

    void find_block(const Tile& tile, int key, int groups, KeyBlock<T>& block) const {
        const std::int32_t* table = args.block_tables + std::int64_t(tile.seq) * args.max_blocks;
        for (int g = 0; g < groups; ++g) {
            const int at = key + g * GROUP;
            std::uint8_t* chunk = pool.chunk(table[at / pool.block_size], tile.kv_head);
            block.find(pool, g, chunk, at % pool.block_size / GROUP);
        }
        for (int g = groups; g < KEY_GROUPS; ++g) block.absent(pool, g);
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
