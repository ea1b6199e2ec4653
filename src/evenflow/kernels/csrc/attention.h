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

#include <omp.h>

#include "activations.h"
#include "attention_schedule.h"
#include "attention_tile.h"
#include "key_block.h"
#include "online_softmax.h"

#if defined(__AMX_BF16__)
#include "attention_amx.h"
#endif

namespace evenflow::EVENFLOW_ISA {

// The pool's element decides what is multiplied; int8 is widened to bf16, which holds it exactly, a key block at a time.
template <class T>
struct DotOf {
    using type = PairDot;
};
template <>
struct DotOf<float> {
    using type = FloatDot;
};

// The products of one tile: by AMX where there is, and by vector registers otherwise.
#if !defined(__AMX_BF16__)
struct AttentionTiles {};
#endif

template <class T>
class Attention {
    using Dot = typename DotOf<T>::type;
    using Element = typename Dot::Element;
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

    const AttentionArgs& args;
    const KvPool<T> pool;
    const int group, dim;
    const float scale_log2;
    Schedule& schedule;

   public:
    explicit Attention(const AttentionArgs& a)
        : args(a),
          pool(a.pool),
          group(a.num_heads / a.pool.num_kv_heads),
          dim(pool.padded_dim),
          scale_log2(a.scale * 1.44269504088896341f),
          schedule(this_threads_schedule()) {}

    void run() {
        plan();
        const Buffer<Tile>& tiles = schedule.tiles;
        const Buffer<Unit>& units = schedule.units;
        const int num_units = int(units.size()), num_tiles = int(tiles.size());
#pragma omp parallel if (num_units > 1)
        {
            AttentionTiles registers;
#pragma omp for schedule(dynamic, 1)
            for (int i = 0; i < num_units; ++i) {
                const Tile& tile = tiles[units[i].tile];
                if (tile.partial < 0) {
                    whole(tile, registers);
                } else {
                    Softmax part = partial(tile, units[i].partition);
                    attend(tile, units[i].partition, part, registers);
                }
            }
#pragma omp for schedule(dynamic, 1)
            for (int i = 0; i < num_tiles; ++i)
                if (tiles[i].partial >= 0) gather(tiles[i]);
        }
    }

   private:
    // Cut the batch into tiles, and long tiles into partitions where there are too few tiles to keep every thread busy.
    void plan() {
        auto& [tiles, units, small, partials] = schedule;
        tiles.clear(), units.clear(), small.clear();
        std::int64_t total = 0;
        for (int seq = 0; seq < args.num_seqs; ++seq) {
            const int rows = (args.query_start[seq + 1] - args.query_start[seq]) * group;
            for (int head = 0; head < pool.num_kv_heads; ++head)
                for (int r = 0; r < rows; r += ROW_TILE) {
                    tiles.push(tile_at(seq, head, r, rows - r));
                    total += cost(tiles[tiles.size() - 1]);
                }
        }
        const std::int64_t fair = total / (4 * omp_get_max_threads());
        int num_partials = 0;
        for (int i = 0; i < int(tiles.size()); ++i) {
            Tile& tile = tiles[i];
            const bool cut = cost(tile) > fair && tile.first_partition() < tile.last_partition();
            if (!cut) {
                (2 * cost(tile) > fair ? units : small).push({i, 0});
                continue;
            }
            tile.partial = num_partials;
            for (int p = tile.first_partition(); p <= tile.last_partition(); ++p, ++num_partials) units.push({i, p});
        }
        for (std::size_t i = 0; i < small.size(); ++i) units.push(small[i]);  // last, to fill the gaps
        partials.reserve(num_partials * Softmax::floats(dim));
    }

    Tile tile_at(int seq, int head, int row, int left) const {
        const int rows = left < ROW_TILE ? left : ROW_TILE;
        const int first = position(seq, row), last = position(seq, row + rows - 1);
        return {seq, head, row, rows, first_visible(first), last + 1, -1};
    }
    static std::int64_t cost(const Tile& tile) { return std::int64_t(tile.key_end - tile.key_begin + 32) * (tile.rows + 4); }
    int position(int seq, int row) const { return args.context_len[seq] + row / group; }
    int first_visible(int position) const { return position < args.window ? 0 : position - args.window + 1; }

    Softmax partial(const Tile& tile, int partition) const {
        const std::size_t index = std::size_t(tile.partial + partition - tile.first_partition());
        return Softmax(schedule.partials.data() + index * Softmax::floats(dim), dim);
    }

    void whole(const Tile& tile, AttentionTiles& registers) const {
        alignas(64) float total_memory[ROW_TILE * (MAX_HEAD_DIM + 1 + LANES)];
        alignas(64) float part_memory[ROW_TILE * (MAX_HEAD_DIM + 1 + LANES)];
        Softmax total(total_memory, dim), part(part_memory, dim);
        total.clear(tile.rows, dim);
        for (int p = tile.first_partition(); p <= tile.last_partition(); ++p) {
            attend(tile, p, part, registers);
            merge(total, part, tile.rows, dim);
        }
        write(tile, total);
    }

    void gather(const Tile& tile) const {
        alignas(64) float total_memory[ROW_TILE * (MAX_HEAD_DIM + 1 + LANES)];
        Softmax total(total_memory, dim);
        total.clear(tile.rows, dim);
        for (int p = tile.first_partition(); p <= tile.last_partition(); ++p) merge(total, partial(tile, p), tile.rows, dim);
        write(tile, total);
    }

    // One partition of a tile's keys.
    void attend(const Tile& tile, int partition, Softmax& state, [[maybe_unused]] AttentionTiles& registers) const {
        Workspace w;
        pack_queries(tile, w.q);
        find_limits(tile, w);
        state.clear(tile.rows, dim);
        const int begin = larger(partition * PARTITION, tile.key_begin / KEY_BLOCK * KEY_BLOCK);
        const int end = smaller((partition + 1) * PARTITION, tile.key_end);
        for (int key = begin; key < end; key += KEY_BLOCK) {
            const int groups = smaller(KEY_GROUPS, (end - key + GROUP - 1) / GROUP);
            find_block(tile, key, groups, w.block);
#if defined(__AMX_BF16__)
            if constexpr (sizeof(Element) == 2) {
                if (dim % AMX_STEP == 0) {
                    registers.shape(tile.rows);
                    registers.scores(w.q, w.block.keys, groups, dim, w.scores, KEY_BLOCK);
                    soften(tile.rows, key, w, state);
                    rescale(state, w.alpha, tile.rows);
                    registers.values(w.p, KEY_BLOCK, w.block.values, groups, w.block.paired(pool), dim, state.acc);
                    continue;
                }
            }
#endif
            score_tile<Dot>(units_of(w.q), tile.rows, w.block.keys, groups, dim / PER_UNIT<Element>, w.scores, KEY_BLOCK);
            soften(tile.rows, key, w, state);
            value_tile<Dot>(units_of(w.p), KEY_BLOCK / PER_UNIT<Element>, tile.rows, w.block.values, groups, dim, w.alpha,
                            state.acc);
        }
    }

    // Which keys each row sees.
    void find_limits(const Tile& tile, Workspace& w) const {
        for (int r = 0; r < tile.rows; ++r) {
            const int at = position(tile.seq, tile.row_begin + r);
            w.first[r] = first_visible(at);
            w.end[r] = at + 1;
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

    void rescale(Softmax& state, const float* alpha, int rows) const {
        for (int r = 0; r < rows; ++r) {
            if (alpha[r] == 1.0f) continue;
            float* row = state.acc + r * dim;
            for (int d = 0; d < dim; d += LANES) store(row + d, load(row + d) * splat(alpha[r]));
        }
    }

    static const std::uint32_t* units_of(const Element* x) { return reinterpret_cast<const std::uint32_t*>(x); }

    void find_block(const Tile& tile, int key, int groups, KeyBlock<T>& block) const {
        const std::int32_t* table = args.block_tables + std::int64_t(tile.seq) * args.max_blocks;
        for (int g = 0; g < groups; ++g) {
            const int at = key + g * GROUP;
            std::uint8_t* chunk = pool.chunk(table[at / pool.block_size], tile.kv_head);
            block.find(pool, g, chunk, at % pool.block_size / GROUP);
        }
        for (int g = groups; g < KEY_GROUPS; ++g) block.absent(pool, g);
    }

    // Where row r of a tile lies in the queries, or in the output.
    std::int64_t offset(const Tile& tile, int r, std::int64_t stride) const {
        const int row = tile.row_begin + r;
        const std::int64_t token = args.query_start[tile.seq] + row / group;
        return token * stride + std::int64_t(tile.kv_head * group + row % group) * pool.head_dim;
    }

    void pack_queries(const Tile& tile, Element* q) const {
        alignas(64) float row[MAX_HEAD_DIM];
        for (int r = 0; r < tile.rows; ++r) {
            read_row(args.query, offset(tile, r, args.query_stride), args.dtype, pool.head_dim, row);
            convert_row(row, dim, q + r * dim);
        }
    }

    void write(const Tile& tile, const Softmax& total) const {
        for (int r = 0; r < tile.rows; ++r) {
            const F32 norm = splat(1.0f / reduce_add(load(total.sum + r * LANES)));
            float* row = total.acc + r * dim;
            for (int d = 0; d < dim; d += LANES) store(row + d, load(row + d) * norm);
            write_row(args.out, offset(tile, r, args.out_stride), args.dtype, pool.head_dim, row);
        }
    }
};

inline void attention(const AttentionArgs* args) {
    with_pool_type(args->pool.dtype, [&](auto t) { Attention<typename decltype(t)::type>(*args).run(); });
}

}  // namespace evenflow::EVENFLOW_ISA
