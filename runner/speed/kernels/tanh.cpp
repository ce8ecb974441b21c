// tanh of every number, float32: see activations.h.

#include "activations.h"
#include "by_rows.h"
#include "vectors.h"

extern "C" void tanh_of(const float *x, float *y, int64_t length, int64_t threads) {
    by_rows(length, threads, [=](int64_t first, int64_t last) {
        by_vectors(last - first, [from = x + first, to = y + first](int64_t i, int64_t count) {
            store(to + i, tanh_of(load(from + i, count)), count);
        });
    });
}
