// Pairs of numbers sorted, float32: a row is two halves of equal length, and the pairs are those at equal places in them.
//
// A NaN in a pair makes both results NaN, and the gradient of equal numbers is shared, as in PyTorch. Pairs are taken N
// at a time as vectors (of GCC and Clang): rows may be short, and one pair at a time a processor has to guess which of
// two numbers is the larger. What is left of a row is taken with some of what was taken before, once more.

#include <cstdint>

#include "by_rows.h"
#include "vectors.h"

template <int N>
struct Pairs {
    typedef typename Some<N>::Numbers Numbers;

    static inline void sort(const float *x, float *y, int64_t half) {
        const Numbers a = load<Numbers>(x), b = load<Numbers>(x + half);
        store(y, (a > b) | (a != a) ? a : b);
        store(y + half, (a < b) | (a != a) ? a : b);
    }

    static inline void unsort(const float *x, const float *g, float *gradient, int64_t half) {
        const Numbers a = load<Numbers>(x), b = load<Numbers>(x + half), none = {}, half_each = none + 0.5f, whole = none + 1.0f;
        const Numbers share = a == b ? half_each : whole;
        const Numbers p = share * load<Numbers>(g), q = share * load<Numbers>(g + half);
        store(gradient, (a < b ? none : p) + (a > b ? none : q));
        store(gradient + half, (a > b ? none : p) + (a < b ? none : q));
    }

    static void sort_rows(const float *x, float *y, int64_t first, int64_t last, int64_t half) {
        for (int64_t row = first; row < last; row++) {
            const int64_t start = 2 * half * row, rest = start + half - N;
            for (int64_t i = start; i <= rest; i += N) sort(x + i, y + i, half);
            if (half % N) sort(x + rest, y + rest, half);
        }
    }

    static void unsort_rows(const float *x, const float *g, float *gradient, int64_t first, int64_t last,
                            int64_t half) {
        for (int64_t row = first; row < last; row++) {
            const int64_t start = 2 * half * row, rest = start + half - N;
            for (int64_t i = start; i <= rest; i += N) unsort(x + i, g + i, gradient + i, half);
            if (half % N) unsort(x + rest, g + rest, gradient + rest, half);
        }
    }
};

// The longest vectors, of a register at most, of which a half has one.
template <typename Work>
static Work fitting(int64_t half, Work one, Work two, Work four, Work eight, Work sixteen) {
    return half < 2 ? one : half < 4 ? two : half < 8 || kLanes < 8 ? four : half < 16 || kLanes < 16 ? eight : sixteen;
}

extern "C" void group_sort(const float *x, float *y, int64_t rows, int64_t half, int64_t threads) {
    const auto sort = fitting(half, Pairs<1>::sort_rows, Pairs<2>::sort_rows, Pairs<4>::sort_rows, Pairs<8>::sort_rows,
                              Pairs<16>::sort_rows);
    by_rows(rows, threads, [=](int64_t first, int64_t last) { sort(x, y, first, last, half); });
}

// g: of y; gradient: of x.
extern "C" void group_sort_backward(const float *x, const float *g, float *gradient, int64_t rows, int64_t half,
                                    int64_t threads) {
    const auto unsort = fitting(half, Pairs<1>::unsort_rows, Pairs<2>::unsort_rows, Pairs<4>::unsort_rows,
                                Pairs<8>::unsort_rows, Pairs<16>::unsort_rows);
    by_rows(rows, threads, [=](int64_t first, int64_t last) { unsort(x, g, gradient, first, last, half); });
}
