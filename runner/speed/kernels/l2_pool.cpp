// L2 norms of disjoint windows, channels last, float32: whole rows of channels are taken at a time.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "by_rows.h"

#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512")
#endif

struct Shape {
    int64_t height, width, channels, out_height, out_width, kh, kw, sy, sx;  // the last two are the window's, too
};

static const float kNoSlope = 1e-15f;  // a norm up to which the derivative is zero

// Calls work(position of a row of outputs' first number, of the first number in its window) for rows [first, last) of
// the outputs of all images.
template <typename Work>
static void by_windows(const Shape &s, int64_t first, int64_t last, Work work) {
    for (int64_t row = first; row < last; row++) {
        const int64_t corner = (row / s.out_height * s.height + row % s.out_height * s.kh) * s.width;
        for (int64_t n = 0; n < s.out_width; n++)
            work((row * s.out_width + n) * s.channels, (corner + n * s.kw) * s.channels);
    }
}

extern "C" void l2_pool(const float *x, float *y, int64_t batch, const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    by_rows(batch * s.out_height, threads, [=](int64_t first, int64_t last) {
        by_windows(s, first, last, [=](int64_t output, int64_t window) {
            float *__restrict norm = y + output;
            for (int64_t c = 0; c < s.channels; c++) norm[c] = 0.0f;
            for (int64_t ky = 0; ky < s.kh; ky++)
                for (int64_t kx = 0; kx < s.kw; kx++) {
                    const float *__restrict from = x + window + (ky * s.width + kx) * s.channels;
                    for (int64_t c = 0; c < s.channels; c++) norm[c] += from[c] * from[c];
                }
            for (int64_t c = 0; c < s.channels; c++) norm[c] = std::sqrt(norm[c]);
        });
    });
}

// gradient: of x; g: of y. Where there is no window it is zero.
extern "C" void l2_pool_backward(const float *x, const float *y, const float *g, float *gradient, int64_t batch,
                                 const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    const int64_t size = s.height * s.width * s.channels;
    by_rows(batch, threads, [=](int64_t first, int64_t last) {
        std::vector<float> slopes(s.channels);
        float *__restrict slope = slopes.data();
        for (int64_t image = first; image < last; image++) {
            std::fill_n(gradient + image * size, size, 0.0f);
            by_windows(s, image * s.out_height, (image + 1) * s.out_height, [=](int64_t output, int64_t window) {
                const float *__restrict norm = y + output, *__restrict of_norm = g + output;
                for (int64_t c = 0; c < s.channels; c++) {
                    const float ratio = of_norm[c] / norm[c];
                    slope[c] = norm[c] > kNoSlope ? ratio : 0.0f;
                }
                for (int64_t ky = 0; ky < s.kh; ky++)
                    for (int64_t kx = 0; kx < s.kw; kx++) {
                        const int64_t place = window + (ky * s.width + kx) * s.channels;
                        const float *__restrict from = x + place;
                        float *__restrict to = gradient + place;
                        for (int64_t c = 0; c < s.channels; c++) to[c] = from[c] * slope[c];
                    }
            });
        }
    });
}
