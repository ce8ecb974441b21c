// Vectors as wide as the processor's registers, by the vector extensions of GCC and Clang.
//
// A loop over single numbers is left as it is more often than not: without AVX-512, GCC 12 makes no vectors of one that
// chooses (a > b ? a : b), and what it does make of vectors longer than a register is slow.

#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;  // SSE, NEON
#endif

typedef float Vector __attribute__((vector_size(4 * kLanes)));
typedef int32_t Integers __attribute__((vector_size(4 * kLanes)));

// Some<N>: N numbers, of which a register holds at least as many.
template <int N>
struct Some {
    typedef float Numbers __attribute__((vector_size(4 * N)));
};

template <typename Numbers = Vector>
static inline Numbers load(const float *from) {
    Numbers numbers;
    std::memcpy(&numbers, from, sizeof numbers);
    return numbers;
}

template <typename Numbers>
static inline void store(float *to, Numbers numbers) {
    std::memcpy(to, &numbers, sizeof numbers);
}

static inline Vector all(float number) { return Vector{} + number; }

// Calls work(i, count) for parts [i, i + count) of a range; count is kLanes, which a compiler knows, but for a rest.
template <typename Work>
static inline void by_vectors(int64_t length, Work work) {
    int64_t i = 0;
    for (; i + kLanes <= length; i += kLanes) work(i, int64_t{kLanes});
    if (i < length) work(i, length - i);
}

// The same for at least kLanes numbers, in whole vectors: the last, from `first`, ends with the range, and overlaps the one
// before by i - first.
template <typename Work>
static inline void by_whole_vectors(int64_t length, Work work) {
    for (int64_t i = 0; i < length; i += kLanes) work(i, i + kLanes < length ? i : length - kLanes);
}

static inline Vector load(const float *from, int64_t count) {
    if (count == kLanes) return load(from);
    Vector numbers = {};
    std::memcpy(&numbers, from, count * sizeof(float));
    return numbers;
}

static inline void store(float *to, Vector numbers, int64_t count) {
    if (count == kLanes)
        store(to, numbers);
    else
        std::memcpy(to, &numbers, count * sizeof(float));
}

// Numbers not set yet, in whole lines of the cache: a vector across two of them takes twice as long.
struct Lines {
    static constexpr std::align_val_t kLine{64};
    struct Free {
        void operator()(float *numbers) const { ::operator delete(numbers, kLine); }
    };
    std::unique_ptr<float, Free> numbers;
    explicit Lines(int64_t count) : numbers(static_cast<float *>(::operator new(count * sizeof(float), kLine))) {}
    float *get() const { return numbers.get(); }
    float *operator+(int64_t n) const { return numbers.get() + n; }
    float &operator[](int64_t n) const { return numbers.get()[n]; }
};
