// Max-pooling without padding or dilation, channels last, float32: vectors of channels are compared at a time.
//
// Of equal numbers the first in the window counts, and a NaN more than any, as in PyTorch.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "by_rows.h"
#include "vectors.h"

struct Shape {
    int64_t height, width, channels, out_height, out_width, kh, kw, sy, sx;
};

// Where the numbers of a window lie, from its first.
static std::vector<int64_t> places(const Shape &s) {
    std::vector<int64_t> found;
    for (int64_t k = 0; k < s.kh * s.kw; k++) found.push_back((k / s.kw * s.width + k % s.kw) * s.channels);
    return found;
}

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
    const std::vector<int64_t> window_places = places(s);
    by_rows(batch, threads, [&](int64_t first, int64_t last) {
        const int64_t *place = window_places.data(), count_places = s.kh * s.kw;
        by_runs(s, first * s.out_height, last * s.out_height, [=](int64_t output, int64_t window, int64_t run) {
            by_vectors(run, [=](int64_t i, int64_t count) {
                Vector best = load(x + window + i, count);
                for (int64_t k = 1; k < count_places; k++) {
                    const Vector other = load(x + window + place[k] + i, count);
                    best = (other > best) | (other != other) ? other : best;
                }
                store(y + output + i, best, count);
            });
        });
    });
}

// gradient: of x; g: of y. Windows that overlap add to the same places, so an image is not shared among threads.
extern "C" void max_pool_backward(const float *x, const float *y, const float *g, float *gradient, int64_t batch,
                                  const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    const std::vector<int64_t> window_places = places(s);
    const int64_t size = s.height * s.width * s.channels, count_places = s.kh * s.kw, *place = window_places.data();
    by_rows(batch, threads, [=](int64_t first, int64_t last) {
        for (int64_t image = first; image < last; image++) {
            std::fill_n(gradient + image * size, size, 0.0f);
            by_runs(s, image * s.out_height, (image + 1) * s.out_height, [=](int64_t output, int64_t window, int64_t run) {
                by_vectors(run, [=](int64_t i, int64_t count) {
                    const Vector best = load(y + output + i, count), none = {};
                    Vector left = load(g + output + i, count);  // what has not found its place yet
                    for (int64_t k = 0; k < count_places; k++) {
                        const Vector from = load(x + window + place[k] + i, count);
                        float *to = gradient + window + place[k] + i;
                        const Integers here = (from == best) | ((from != from) & (best != best));
                        store(to, load(to, count) + (here ? left : none), count);
                        left = here ? none : left;
                    }
                });
            });
        }
    });
}
