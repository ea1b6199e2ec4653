// A step's chunks as flat arrays: where each token lies, and who samples.
//
// In numpy it is some twenty operations on short arrays. Each takes 2 us, and 10 us after a model's weights have gone
// through the caches; here it is one call.
#pragma once

#include <cstring>

#include "abi.h"

namespace evenflow::EVENFLOW_ISA {

inline void lay_out(LayoutArgs* record) {
    LayoutArgs& args = *record;
    std::int32_t token = 0, num_sampling = 0, highest = 0;
    args.query_start[0] = 0;
    for (int seq = 0; seq < args.num_seqs; ++seq) {
        const std::int64_t row = args.rows[seq], start = args.starts[seq], end = start + args.lengths[seq];
        if (end > std::int64_t(args.max_blocks) * args.block_size) {
            args.num_sampling = -1;
            return;
        }
        std::int32_t* table = args.block_tables + std::int64_t(seq) * args.max_blocks;
        std::memcpy(table, args.tables + row * args.table_stride, sizeof(*table) * args.max_blocks);
        for (std::int64_t position = start; position < end; ++position, ++token) {
            const std::int64_t block = position / args.block_size, offset = position % args.block_size;
            const std::int32_t slot = std::int32_t(table[block] * std::int64_t(args.block_size) + offset);
            args.positions[token] = position;
            args.slots[token] = slot;
            highest = slot > highest ? slot : highest;
        }
        args.query_start[seq + 1] = token;
        args.context_len[seq] = std::int32_t(start);
        if (args.samples[seq]) {
            args.logit_rows[num_sampling] = token - 1;
            args.sampling_rows[num_sampling] = row;
            args.places[num_sampling++] = end - args.num_prompt_tokens[row];
        }
    }
    args.num_sampling = num_sampling;
    args.highest_slot = highest;
}

}  // namespace evenflow::EVENFLOW_ISA
