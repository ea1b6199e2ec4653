// Work cut into one share per thread; who is done with his own helps with the others'.
//
// Cores are not equally fast: another guest of the machine may sit on the other half of one, or a process of our own may need
// it for a moment, and then that one takes up to four times as long. Equal shares would all wait for it. A share is taken from
// its beginning by its owner, who asks memory for what comes next in it, and from its end by helpers. So as long as all are
// equally fast each thread walks through its own part of the weights, and touches no cache line that another one writes.
#pragma once

#include <omp.h>

#include "buffer.h"

namespace evenflow::EVENFLOW_ISA {

class Shares {
    // What is left of a share: its beginning in the lower half of the word, its end in the upper. One atomic addition moves
    // either, and returns both as they were; what was empty then stays empty, wherever the two go afterwards.
    struct alignas(64) Share {
        std::uint64_t left;
    };
    static constexpr std::uint64_t BEGIN = 1, END = std::uint64_t(1) << 32;

    Share* shares;
    int num;

   public:
    // Of `count` pieces; made before the parallel region by the thread that opens it.
    explicit Shares(int count) : num(omp_get_max_threads()) {
        static thread_local Buffer<Share> memory;
        memory.reserve(std::size_t(num));
        shares = memory.data();
        for (int t = 0; t < num; ++t)
            shares[t].left = BEGIN * std::uint64_t(edge(count, t)) + END * std::uint64_t(edge(count, t + 1));
    }

    // In the region, by each of its threads: body(piece) for every piece that it gets.
    template <class Body>
    EVENFLOW_INLINE void work(Body&& body) const {
        const int me = omp_get_thread_num();
        std::uint64_t left;
        while (holds(left = __atomic_fetch_add(&shares[me].left, BEGIN, __ATOMIC_RELAXED))) body(int(std::uint32_t(left)));
        for (int other = 1; other < num; ++other) {
            std::uint64_t* share = &shares[(me + other) % num].left;
            while (holds(left = __atomic_fetch_sub(share, END, __ATOMIC_RELAXED))) body(int(left >> 32) - 1);
        }
    }

   private:
    int edge(int count, int thread) const { return int(std::int64_t(count) * thread / num); }
    static bool holds(std::uint64_t left) { return std::int32_t(std::uint32_t(left)) < std::int32_t(left >> 32); }
};

// body(row) for every row, by all threads if `parallel`: a region costs some microseconds, which few rows are not worth.
template <class Body>
EVENFLOW_INLINE void share_rows(int rows, bool parallel, Body&& body) {
    if (!parallel) {
        for (int row = 0; row < rows; ++row) body(row);
        return;
    }
    constexpr int PIECE = 4;
    const Shares pieces((rows + PIECE - 1) / PIECE);
#pragma omp parallel
    pieces.work([&](int piece) {
        const int begin = piece * PIECE, end = rows - begin < PIECE ? rows : begin + PIECE;
        for (int row = begin; row < end; ++row) body(row);
    });
}

}  // namespace evenflow::EVENFLOW_ISA
