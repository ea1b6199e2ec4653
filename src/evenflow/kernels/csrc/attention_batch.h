// A batch of attention as tiles: how it is cut, where its rows lie, how a tile's partial results come together.
//
// Nothing here depends on the pool's element type, so it is compiled once; attention.h has what does.
#pragma once

#include <omp.h>

#include "attention_rows.h"

namespace evenflow::EVENFLOW_ISA {

class AttentionBatch {
   protected:
    const AttentionArgs& args;
    const BatchArgs& batch;
    const KvPool pool;
    const int group, dim;
    Schedule& schedule;

   public:
    explicit AttentionBatch(const AttentionArgs& a)
        : args(a),
          batch(*a.batch),
          pool(a.pool),
          group(a.num_heads / a.pool.num_kv_heads),
          dim(pool.padded_dim),
          schedule(this_threads_schedule()) {}

    // Cut the batch into tiles, and long tiles into partitions where there are too few tiles to keep every thread busy.
    void plan() {
        auto& [tiles, units, small, partials] = schedule;
        tiles.clear(), units.clear(), small.clear();
        std::int64_t total = 0;
        for (int seq = 0; seq < batch.num_seqs; ++seq) {
            const int rows = (batch.query_start[seq + 1] - batch.query_start[seq]) * group;
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
        partials.reserve(num_partials * PartialResult::floats(dim));
    }

    // The result of a tile that was cut.
    void gather(const Tile& tile) const {
        alignas(64) float total_memory[ROW_TILE * (MAX_HEAD_DIM + 1 + LANES)];
        PartialResult total(total_memory, dim);
        total.clear(tile.rows, dim);
        for (int p = tile.first_partition(); p <= tile.last_partition(); ++p) merge(total, partial(tile, p), tile.rows, dim);
        write(tile, total);
    }

   protected:
    PartialResult partial(const Tile& tile, int partition) const {
        const std::size_t index = std::size_t(tile.partial + partition - tile.first_partition());
        return PartialResult(schedule.partials.data() + index * PartialResult::floats(dim), dim);
    }

    // Which keys each row sees, counted from key `begin`.
    void find_limits(const Tile& tile, int begin, Limits& limits) const {
        for (int r = 0; r < tile.rows; ++r) {
            const int at = position(tile.seq, tile.row_begin + r);
            limits.first[r] = first_visible(at) - begin;
            limits.end[r] = at + 1 - begin;
        }
    }

    // Where row r of a tile lies in the queries, or in the output.
    std::int64_t offset(const Tile& tile, int r, std::int64_t stride) const {
        const int row = tile.row_begin + r;
        const std::int64_t token = batch.query_start[tile.seq] + row / group;
        return token * stride + std::int64_t(tile.kv_head * group + row % group) * pool.head_dim;
    }

    void write(const Tile& tile, const PartialResult& total) const {
        for (int r = 0; r < tile.rows; ++r) {
            const F32 norm = splat(1.0f / reduce_add(load(total.sum + r * LANES)));
            float* row = total.acc + r * dim;
            for (int d = 0; d < dim; d += LANES) store(row + d, load(row + d) * norm);
            write_row(args.out, offset(tile, r, args.out_stride), args.dtype, pool.head_dim, row);
        }
    }

   private:
    Tile tile_at(int seq, int head, int row, int left) const {
        const int rows = left < ROW_TILE ? left : ROW_TILE;
        const int first = position(seq, row), last = position(seq, row + rows - 1);
        return {seq, head, row, rows, first_visible(first), last + 1, -1};
    }
    static std::int64_t cost(const Tile& tile) { return std::int64_t(tile.key_end - tile.key_begin + 32) * (tile.rows + 4); }
    int position(int seq, int row) const { return batch.context_len[seq] + row / group; }
    int first_visible(int position) const { return position < args.window ? 0 : position - args.window + 1; }
};

}  // namespace evenflow::EVENFLOW_ISA
