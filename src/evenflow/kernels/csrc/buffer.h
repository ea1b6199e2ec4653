// Growing scratch memory, aligned to cache lines. Kept per thread by its users, so a steady state allocates nothing.
//
// Own code instead of std::vector on purpose: a standard template instantiated in several isa_*.cpp is one function to
// the linker, which may keep the copy compiled for AVX-512 and hand it to a processor that has none.
#pragma once

#include <cmath>
#include <cstdlib>

#include "vec.h"

namespace evenflow::EVENFLOW_ISA {

template <class T>
class Buffer {
    T* items = nullptr;
    std::size_t used = 0, capacity = 0;

   public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(items); }

    void clear() { used = 0; }
    void resize(std::size_t wanted) { reserve(wanted), used = wanted; }
    std::size_t size() const { return used; }
    T& operator[](std::size_t i) { return items[i]; }
    const T& operator[](std::size_t i) const { return items[i]; }
    T* data() const { return items; }

    void reserve(std::size_t wanted) {
        if (wanted <= capacity) return;
        const std::size_t bytes = (wanted * 2 * sizeof(T) + 63) / 64 * 64;
        T* fresh = static_cast<T*>(std::aligned_alloc(64, bytes));
        if (fresh == nullptr) std::abort();  // out of memory in the middle of a model step: nothing could go on
        if (used > 0) std::memcpy(static_cast<void*>(fresh), items, used * sizeof(T));
        std::free(items);
        items = fresh;
        capacity = wanted * 2;
    }
    void push(const T& item) {
        reserve(used + 1);
        items[used++] = item;
    }
};

// Floats for one row at a time. Each thread has one, so a kernel that holds it must not call another that takes it.
inline float* row_scratch(int floats) {
    static thread_local Buffer<float> scratch;
    scratch.reserve(std::size_t(floats) + LANES);
    return scratch.data();
}

}  // namespace evenflow::EVENFLOW_ISA
