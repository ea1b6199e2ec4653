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
#include "attention_float.h"
#include "attention_int8.h"
#include "attention_tile.h"

#if defined(__AMX_BF16__)
#include "attention_amx.h"
#endif

namespace evenflow::EVENFLOW_ISA {

// The pool's element decides what is multiplied, and with what.
template <class T>
struct ProductsOf {
#if defined(__AMX_BF16__)
    using Tiles = AmxTiles<AmxPairs>;
#else
    using Tiles = VectorTiles<PairDot>;
#endif
    using Rows = FloatRows<bf16, Tiles>;
};
template <>
struct ProductsOf<float> {
    using Tiles = VectorTiles<FloatDot>;
    using Rows = FloatRows<float, Tiles>;
};
template <>
struct ProductsOf<std::int8_t> {
#if defined(__AMX_INT8__)
    using Tiles = AmxTiles<AmxQuads>;
#else
    using Tiles = VectorTiles<QuadDot>;
#endif
    using Rows = Int8Rows<Tiles>;
};

template <class T>
class Attention : AttentionBatch {
    using Tiles = typename ProductsOf<T>::Tiles;
    using Rows = typename ProductsOf<T>::Rows;

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
            Tiles products(pool.block_size % PAIR == 0);
            // A few in a row, so that a thread knows what it does next.
            const int run = larger(1, smaller(MAX_RUN, num_units / (8 * omp_get_num_threads())));
#pragma omp for schedule(dynamic, run)
            for (int i = 0; i < num_units; ++i) {
                const Tile& tile = tiles[units[i].tile];
                Ahead ahead;
                if ((i + 1) % run != 0 && i + 1 < num_units) {
                    const Tile& next = tiles[units[i + 1].tile];
                    look_ahead(next, next.partial < 0 ? next.first_partition() : units[i + 1].partition, ahead);
                }
                if (tile.partial < 0) {
                    whole(tile, products, ahead);
                } else {
                    PartialResult part = partial(tile, units[i].partition);
                    attend(tile, units[i].partition, part, products, ahead);
                }
            }
#pragma omp for schedule(dynamic, 1)
            for (int i = 0; i < num_tiles; ++i)
                if (tiles[i].partial >= 0) gather(tiles[i]);
        }
    }

   private:
    void whole(const Tile& tile, Tiles& products, const Ahead& ahead) const {
        alignas(64) float total_memory[ROW_TILE * (MAX_HEAD_DIM + 1 + LANES)];
        alignas(64) float part_memory[ROW_TILE * (MAX_HEAD_DIM + 1 + LANES)];
        PartialResult total(total_memory, dim), part(part_memory, dim);
        const int first = tile.first_partition(), last = tile.last_partition();
        for (int p = first; p <= last; ++p) {
            Ahead own;
            if (p < last) look_ahead(tile, p + 1, own);
            attend(tile, p, p == first ? total : part, products, p < last ? own : ahead);
            if (p > first) merge(total, part, tile.rows, dim);
        }
        write(tile, total);
    }

    // One partition of a tile's keys.
    void attend(const Tile& tile, int partition, PartialResult& state, Tiles& products, const Ahead& ahead) const {
        Rows work;
        Limits limits;
        const int begin = first_key(tile, partition);
        const int groups = (end_of_keys(tile, partition) - begin + GROUP - 1) / GROUP;
        find_limits(tile, begin, limits);
        take_queries(tile, work);
        take_groups(tile, begin, groups, work);
        work.attend(products, limits, tile.rows, groups, dim, scale_log2, ahead, state);
    }

    static int first_key(const Tile& tile, int partition) {
        return larger(partition * PARTITION, tile.key_begin / PAIR * PAIR);
    }
    static int end_of_keys(const Tile& tile, int partition) { return smaller((partition + 1) * PARTITION, tile.key_end); }

    // Scales and keys of what comes next, if that is short.
    void look_ahead(const Tile& tile, int partition, Ahead& ahead) const {
        if (!Rows::LOOKS_AHEAD || tile.rows > SHORT_ROWS) return;
        const std::int32_t* table = batch.block_tables + std::int64_t(tile.seq) * batch.max_blocks;
        const int size = pool.block_size, end = end_of_keys(tile, partition);
        for (int block = first_key(tile, partition) / size; block * size < end; ++block)
            ahead.add(pool.chunk(table[block], tile.kv_head), 2 * pool.scales_bytes + pool.half_bytes);
    }

    void take_queries(const Tile& tile, Rows& work) const {
        alignas(64) float row[MAX_HEAD_DIM];
        for (int r = 0; r < tile.rows; ++r) {
            read_row(args.query, offset(tile, r, args.query_stride), args.dtype, pool.head_dim, row);
            work.take_query(r, tile.rows, row, dim);
        }
    }

    void take_groups(const Tile& tile, int begin, int groups, Rows& work) const {
        const std::int32_t* table = batch.block_tables + std::int64_t(tile.seq) * batch.max_blocks + begin / pool.block_size;
        const int in_block = pool.block_size / GROUP;
        int group = begin % pool.block_size / GROUP;
        for (int g = 0; g < groups; group = 0) {
            std::uint8_t* chunk = pool.chunk(*table++, tile.kv_head);
            for (; group < in_block && g < groups; ++group, ++g) work.take_group(pool, g, chunk, group);
        }
    }
};

inline void attention(const AttentionArgs* args) {
    const DType dtype = args->pool.dtype;
#if defined(EVENFLOW_UNIT_BELOW)
    // What these products bring nothing to is compiled there already, and has the same bits.
#if defined(__AMX_BF16__)
    const int dim = KvPool(args->pool).padded_dim;
    const bool better = dtype == DType::bf16 ? ProductsOf<bf16>::Tiles::take(dim)
                                             : dtype == DType::i8 && ProductsOf<std::int8_t>::Tiles::take(dim);
#else
    const bool better = dtype == DType::bf16;
#endif
    if (!better) return EVENFLOW_UNIT_BELOW()->attention(args);
#else
    if (dtype == DType::f32) return Attention<float>(*args).run();
#endif
    if (dtype == DType::bf16) return Attention<bf16>(*args).run();
    Attention<std::int8_t>(*args).run();
}

}  // namespace evenflow::EVENFLOW_ISA
