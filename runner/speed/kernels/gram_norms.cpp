// Squared norms of per-example weight gradients of a convolution from two Gram matrices, float32:
//
//   squares[i] = sum_{t,u} sum_k pixels[i, p(t,k), p(u,k)] * outputs[i, t, u],
//
// p(t, k) the pixel under kernel position k of window t; in the padding the products are zero. `largest` is what the
// sum would be if all its terms had one sign: (sum_t sqrt(sum_k pixels[i, p(t,k), p(t,k)] * outputs[i, t, t]))^2.
//
// An example's pixel products are first copied to lines with the padding's zeros, so that all windows of one row are
// read alike, whatever the kernel position: K loads and additions for one multiplication.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "by_rows.h"
#include "vectors.h"

constexpr int kShort = kLanes < 8 ? kLanes : 8;  // images are narrow where this pays

struct Shape {
    int64_t height, width, out_height, out_width, kh, kw, sy, sx, ph, pw, dy, dx;
    int64_t padded_width() const { return width + 2 * pw; }
    int64_t line() const { return (height + 2 * ph) * padded_width(); }
};

typedef std::vector<const float *> Starts;  // for each kernel position: where window 0's pixel is in a pixel's line

// sum_{r < R, w < count} (sum_k k-th start[r * row + w * step]) * of_outputs[r * count + w]: R rows of windows at once,
// so that additions do not wait for each other.
template <int R>
static float rows_of_windows(const Starts &starts, int64_t offset, int64_t row, int64_t step, const float *of_outputs,
                             int64_t count) {
    typedef Some<kShort>::Numbers Part;
    float total = 0;
    int64_t w = 0;
    if (step == 1) {
        Part sums = {};
        for (; w + kShort <= count; w += kShort) {
            Part of_windows[R] = {};
            for (const float *start : starts)
#pragma GCC unroll 4
                for (int r = 0; r < R; r++) of_windows[r] += load<Part>(start + offset + r * row + w);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) sums += of_windows[r] * load<Part>(of_outputs + r * count + w);
        }
        for (int lane = 0; lane < kShort; lane++) total += sums[lane];
    }
    for (; w < count; w++)
        for (int r = 0; r < R; r++) {
            float of_window = 0;
            for (const float *start : starts) of_window += start[offset + r * row + w * step];
            total += of_window * of_outputs[r * count + w];
        }
    return total;
}

static void example(const float *lines, const float *outputs, const Shape &s, float *square, float *largest) {
    const int64_t positions = s.out_height * s.out_width, row = s.sy * s.padded_width();
    double total = 0, roots = 0;
    Starts starts;
    for (int64_t t = 0; t < positions; t++) {
        const int64_t y = t / s.out_width, x = t % s.out_width;
        starts.clear();
        for (int64_t ky = 0; ky < s.kh; ky++)
            for (int64_t kx = 0; kx < s.kw; kx++) {
                const int64_t v = y * s.sy + ky * s.dy - s.ph, w = x * s.sx + kx * s.dx - s.pw;
                if (v < 0 || v >= s.height || w < 0 || w >= s.width) continue;
                starts.push_back(lines + (v * s.width + w) * s.line() + ky * s.dy * s.padded_width() + kx * s.dx);
            }
        const float *of_outputs = outputs + t * positions;
        int64_t v = 0;
        for (; v + 4 <= s.out_height; v += 4)
            total += rows_of_windows<4>(starts, v * row, row, s.sx, of_outputs + v * s.out_width, s.out_width);
        for (; v < s.out_height; v++)
            total += rows_of_windows<1>(starts, v * row, row, s.sx, of_outputs + v * s.out_width, s.out_width);
        double own = 0;
        for (const float *start : starts) own += start[y * row + x * s.sx];
        roots += std::sqrt(std::max(0.0, own * of_outputs[t]));
    }
    *square = static_cast<float>(total);
    *largest = static_cast<float>(roots * roots);
}

// pixels: [batch, height * width, height * width], outputs: [batch, windows, windows]; squares, largest: [batch].
extern "C" void gram_norms(const float *pixels, const float *outputs, float *squares, float *largest, int64_t batch,
                           const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    by_rows(batch, threads, [=](int64_t first, int64_t last) {
        const int64_t count = s.height * s.width, positions = s.out_height * s.out_width;
        std::vector<float> lines(count * s.line());
        for (int64_t i = first; i < last; i++) {
            for (int64_t p = 0; p < count; p++)
                for (int64_t v = 0; v < s.height; v++)
                    std::memcpy(&lines[p * s.line() + (v + s.ph) * s.padded_width() + s.pw],
                                pixels + (i * count + p) * count + v * s.width, s.width * sizeof(float));
            example(lines.data(), outputs + i * positions * positions, s, squares + i, largest + i);
        }
    });
}
