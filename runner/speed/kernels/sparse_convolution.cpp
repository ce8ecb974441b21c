// Convolution of images of one channel that are mostly zero, then max-pooling with stride 1: the work is one row of
// multiplications for each pixel that is not zero and each output row that it reaches.
//
// An output position is a cell of `channels` numbers. A pixel adds to taps_h x taps_w cells that lie side by side: from
// the cell `corner` on, its value times those weights that its place between two strides (`kind`) calls for. Cells
// outside of the output are there to be added to, and left unread.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "by_rows.h"
#include "vectors.h"

#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512")
#endif

struct Shape {
    int64_t cells_h, cells_w, channels, taps_h, taps_w, top, left, out_h, out_w, pool_h, pool_w;
};

// length: of a row of weights, where it is known when this is compiled; else 0.
template <int64_t length>
static void add_pixels(const Shape &s, const float *values, const int32_t *corners, const int32_t *kinds, int64_t first,
                       int64_t last, const float *weights, float *__restrict cells) {
    const int64_t row = length ? length : s.taps_w * s.channels, wide = s.cells_w * s.channels;
    for (int64_t p = first; p < last; p++) {
        const float value = values[p];
        const float *__restrict from = weights + kinds[p] * s.taps_h * row;
        float *__restrict to = cells + corners[p] * s.channels;
        for (int64_t i = 0; i < s.taps_h; i++)
            for (int64_t c = 0; c < row; c++)
                to[i * wide + c] += value * from[i * row + c];
    }
}

// Pixels of image n: [starts[n], starts[n + 1]). weights: [kind, taps_h, taps_w, channels]. y: [batch, out_h, out_w,
// channels], after pooling.
extern "C" void sparse_convolution(const float *values, const int32_t *corners, const int32_t *kinds,
                                   const int64_t *starts, const float *weights, const float *bias, float *y,
                                   int64_t batch, const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    by_rows(batch, threads, [=](int64_t first, int64_t last) {
        const int64_t wide = s.cells_w * s.channels, run = s.out_w * s.channels;
        std::vector<float> room(s.cells_h * wide + 16), biases(run);
        float *cells = room.data();
        while (reinterpret_cast<uintptr_t>(cells) % 64)  // a cell of 16 numbers is a line of the cache
            cells++;
        for (int64_t i = 0; i < run; i++)
            biases[i] = bias[i % s.channels];
        const auto add = s.taps_w * s.channels == 64 ? add_pixels<64> : add_pixels<0>;
        for (int64_t n = first; n < last; n++) {
            std::fill(cells, cells + s.cells_h * wide, 0.0f);
            add(s, values, corners, kinds, starts[n], starts[n + 1], weights, cells);
            for (int64_t r = 0; r < s.out_h; r++) {
                float *__restrict best = y + (n * s.out_h + r) * run;
                const float *corner = cells + (r + s.top) * wide + s.left * s.channels;
                std::copy(corner, corner + run, best);
                for (int64_t k = 1; k < s.pool_h * s.pool_w; k++) {
                    const float *__restrict from = corner + k / s.pool_w * wide + k % s.pool_w * s.channels;
                    by_vectors(run, [=](int64_t i, int64_t count) {
                        const Vector other = load(from + i, count), so_far = load(best + i, count);
                        store(best + i, (other > so_far) | (other != other) ? other : so_far, count);
                    });
                }
                for (int64_t i = 0; i < run; i++)
                    best[i] += biases[i];
            }
        }
    });
}
