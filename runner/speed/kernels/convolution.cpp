// Convolutions by their definition, channels last, float32, any window, stride and zero padding, no dilation or groups:
//
//   y[i, v, u, o] = bias[o] + sum_{ky, kx, c} x[i, v*sy + ky - ph, u*sx + kx - pw, c] * w[o, c, ky, kx]
//
// A tile of P outputs by J vectors of channels is kept in registers over the whole window: P broadcasts and J loads for
// P*J multiply-adds, and no unfolded copy of the input. In a row of a window, columns and channels are neighbours in memory.
//
// For the gradient of the inputs, the same tiles hold numbers of the result: each output adds its gradients times the
// weights to the inputs that it saw. So no multiplication is one with zero, as many would be in a convolution of the output
// gradients, which has zeros around them.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "by_rows.h"
#include "vectors.h"

constexpr int kOutputs = 6;
constexpr int kVectors = 2;

struct Shape {
    int64_t height, width, in, out_height, out_width, out, kh, kw, sy, sx, ph, pw;
};

// One window for some outputs: `rows` rows of `run` neighbouring inputs, `row` apart. `from` and `to` have the places of
// an output's first input and of the output in an image. weights: [rows, run, lanes].
struct Windows {
    int64_t rows, run, row, lanes, channels;
    std::vector<int64_t> from, to;
    Lines weights;
    Windows(int64_t rows, int64_t run, int64_t row, int64_t channels)
        : rows(rows), run(run), row(row), lanes((channels + kLanes - 1) / kLanes * kLanes), channels(channels),
          weights(rows * run * lanes) {
        std::fill_n(weights.get(), rows * run * lanes, 0.0f);
    }
};

// Where there is no bias, a tile is added to what `out` has.
template <int P, int J>
static void tile(const Windows &s, int64_t first, int64_t o, const float *image, const float *bias, float *out) {
    Vector sum[P][J];
    const float *x[P], *w = s.weights + o;
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) {
        x[p] = image + s.from[first + p];
#pragma GCC unroll 4
        for (int j = 0; j < J; j++) {
            const int64_t c = o + j * kLanes;
            const int64_t count = std::min<int64_t>(kLanes, s.channels - c);
            sum[p][j] = bias ? load(bias + c) : load(out + s.to[first + p] + c, count);
        }
    }
    for (int64_t r = 0; r < s.rows; r++) {
        for (int64_t k = 0; k < s.run; k++, w += s.lanes) {
            Vector weight[J];
#pragma GCC unroll 4
            for (int j = 0; j < J; j++) weight[j] = load(w + j * kLanes);
#pragma GCC unroll 8
            for (int p = 0; p < P; p++)
#pragma GCC unroll 4
                for (int j = 0; j < J; j++) sum[p][j] += x[p][k] * weight[j];
        }
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) x[p] += s.row;
    }
#pragma GCC unroll 8
    for (int p = 0; p < P; p++)
#pragma GCC unroll 4
        for (int j = 0; j < J; j++) {
            const int64_t c = o + j * kLanes;
            store(out + s.to[first + p] + c, sum[p][j], std::min<int64_t>(kLanes, s.channels - c));
        }
}

template <int J, int P = kOutputs>
static void tile_of(int64_t outputs, const Windows &s, int64_t first, int64_t o, const float *image, const float *bias,
                    float *out) {
    if constexpr (P > 1)
        if (outputs < P) return tile_of<J, P - 1>(outputs, s, first, o, image, bias, out);
    tile<P, J>(s, first, o, image, bias, out);
}

static void convolve(const Windows &s, const float *image, const float *bias, float *out) {
    const int64_t outputs = s.from.size(), tiles = (outputs + kOutputs - 1) / kOutputs;
    for (int64_t o = 0; o < s.lanes; o += kVectors * kLanes)
        for (int64_t t = 0; t < tiles; t++) {  // of nearly equal size
            const int64_t first = t * outputs / tiles, count = (t + 1) * outputs / tiles - first;
            if (s.lanes - o > kLanes)
                tile_of<kVectors>(count, s, first, o, image, bias, out);
            else
                tile_of<1>(count, s, first, o, image, bias, out);
        }
}

// Copies an image [height, width, channels] into one with zeros around it, whose rows have `width_to` pixels.
static void place(const float *from, int64_t height, int64_t width, int64_t channels, float *to, int64_t width_to,
                  int64_t top, int64_t left) {
    for (int64_t y = 0; y < height; y++)
        std::memcpy(to + ((y + top) * width_to + left) * channels, from + y * width * channels,
                    width * channels * sizeof(float));
}

// weight: [out, in, kh, kw]; bias: [out], or null where there is none.
extern "C" void convolution(const float *x, const float *weight, const float *bias, float *y, int64_t batch,
                            const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    const int64_t height = s.height + 2 * s.ph, width = s.width + 2 * s.pw;
    Windows windows(s.kh, s.kw * s.in, width * s.in, s.out);
    std::vector<float> biases(windows.lanes);
    if (bias) std::copy_n(bias, s.out, biases.begin());
    for (int64_t o = 0; o < s.out; o++)
        for (int64_t c = 0; c < s.in; c++)
            for (int64_t k = 0; k < s.kh * s.kw; k++)
                windows.weights[(k * s.in + c) * windows.lanes + o] = *weight++;
    for (int64_t v = 0; v < s.out_height; v++)
        for (int64_t u = 0; u < s.out_width; u++) {
            windows.from.push_back((v * s.sy * width + u * s.sx) * s.in);
            windows.to.push_back((v * s.out_width + u) * s.out);
        }
    by_rows(batch, threads, [&](int64_t first, int64_t last) {
        const bool pads = s.ph || s.pw;
        std::vector<float> padded(pads ? height * width * s.in : 0);
        for (int64_t i = first; i < last; i++) {
            const float *image = x + i * s.height * s.width * s.in;
            if (pads) place(image, s.height, s.width, s.in, padded.data(), width, s.ph, s.pw);
            convolve(windows, pads ? padded.data() : image, biases.data(),
                     y + i * s.out_height * s.out_width * s.out);
        }
    });
}

// g: of y; gradient: of x. An output adds to each row of its window kw*in neighbouring numbers, a product of its gradients
// and weights. They are added in parts that end before the window of the next output begins: the outputs of a tile then
// add to different numbers.
extern "C" void convolution_backward(const float *g, const float *weight, float *gradient, int64_t batch,
                                     const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    const int64_t width = std::max((s.out_width - 1) * s.sx + s.kw, s.width + 2 * s.pw);
    const int64_t height = std::max((s.out_height - 1) * s.sy + s.kh, s.height + 2 * s.ph), run = s.kw * s.in;
    std::vector<Windows> parts;
    for (int64_t ky = 0; ky < s.kh; ky++)
        for (int64_t part = 0; part < run; part += s.sx * s.in) {
            const int64_t count = std::min(s.sx * s.in, run - part);
            Windows windows(1, s.out, 0, count);
            for (int64_t o = 0; o < s.out; o++)
                for (int64_t n = 0; n < count; n++) {
                    const int64_t kx = (part + n) / s.in, c = (part + n) % s.in;
                    windows.weights[o * windows.lanes + n] = weight[((o * s.in + c) * s.kh + ky) * s.kw + kx];
                }
            for (int64_t v = 0; v < s.out_height; v++)
                for (int64_t u = 0; u < s.out_width; u++) {
                    windows.from.push_back((v * s.out_width + u) * s.out);
                    windows.to.push_back(((v * s.sy + ky) * width + u * s.sx) * s.in + part);
                }
            parts.push_back(std::move(windows));
        }
    by_rows(batch, threads, [&](int64_t first, int64_t last) {
        Lines padded(height * width * s.in);
        for (int64_t i = first; i < last; i++) {
            std::fill_n(padded.get(), height * width * s.in, 0.0f);
            for (const Windows &windows : parts)
                convolve(windows, g + i * s.out_height * s.out_width * s.out, nullptr, padded.get());
            for (int64_t y = 0; y < s.height; y++)
                std::memcpy(gradient + (i * s.height + y) * s.width * s.in,
                            padded + ((y + s.ph) * width + s.pw) * s.in, s.width * s.in * sizeof(float));
        }
    });
}
