// Max-pooling without padding or dilation, channels last, float32: whole rows of channels are compared at a time.
//
// Of equal numbers the first in the window counts, and a NaN more than any, as in PyTorch.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "by_rows.h"

struct Shape {
    int64_t height, width, channels, out_height, out_width, kh, kw, sy, sx;
};

// Calls work(position of the first output number, of the first number in its window, how many outputs lie side by side
// and have windows that do), for all of rows [first, last) of the outputs of all images.
template <typename Work>
static void by_runs(const Shape &s, int64_t first, int64_t last, Work work) {
    const bool joined = s.sx == 1;
    const int64_t run = joined ? s.out_width * s.channels : s.channels, runs = joined ? 1 : s.out_width;
    for (int64_t row = first; row < last; row++) {
        const int64_t corner = (row / s.out_height * s.height + row % s.out_height * s.sy) * s.width;
        for (int64_t n = 0; n < runs; n++)
            work((row * s.out_width + n) * s.channels, (corner + n * s.sx) * s.channels, run);
    }
}

extern "C" void max_pool(const float *x, float *y, int64_t batch, const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    by_rows(batch, threads, [=](int64_t first, int64_t last) {
        by_runs(s, first * s.out_height, last * s.out_height, [=](int64_t output, int64_t window, int64_t run) {
            float *__restrict best = y + output;
            std::copy(x + window, x + window + run, best);
            for (int64_t k = 1; k < s.kh * s.kw; k++) {
                const float *__restrict other = x + window + (k / s.kw * s.width + k % s.kw) * s.channels;
                for (int64_t i = 0; i < run; i++)
                    best[i] = (other[i] > best[i]) | (other[i] != other[i]) ? other[i] : best[i];
            }
        });
    });
}

// gradient: of x, zero before; g: of y. An image's windows may overlap, so an image is not shared among threads.
extern "C" void max_pool_backward(const float *x, const float *y, const float *g, float *gradient, int64_t batch,
                                  const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    by_rows(batch, threads, [=](int64_t first, int64_t last) {
        std::vector<float> kept(s.out_width * s.channels);  // of g: what has not found its place yet
        float *__restrict left = kept.data();
        by_runs(s, first * s.out_height, last * s.out_height, [=](int64_t output, int64_t window, int64_t run) {
            const float *__restrict best = y + output;
            std::copy(g + output, g + output + run, left);
            for (int64_t k = 0; k < s.kh * s.kw; k++) {
                const int64_t place = window + (k / s.kw * s.width + k % s.kw) * s.channels;
                const float *__restrict from = x + place;
                float *__restrict to = gradient + place;
                for (int64_t i = 0; i < run; i++) {
                    const bool here = (from[i] == best[i]) | ((from[i] != from[i]) & (best[i] != best[i]));
                    to[i] += here ? left[i] : 0.0f;
                    left[i] = here ? 0.0f : left[i];
                }
            }
        });
    });
}
