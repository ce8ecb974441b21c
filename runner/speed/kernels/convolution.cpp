// Convolutions by their definition, channels last, float32, any window, stride and zero padding, no dilation or groups:
//
//   y[i, v, u, o] = bias[o] + sum_{ky, kx, c} x[i, v*sy + ky - ph, u*sx + kx - pw, c] * w[o, c, ky, kx]
//
// A tile of P outputs by J vectors of channels is kept in registers over the whole window: P broadcasts and J loads for
// P*J multiply-adds, and no unfolded copy of the input. In a row of a window, columns and channels are neighbours in memory.
//
// The gradient of the inputs is a convolution again. An input sees the weights whose place in the window has the same
// remainder by the stride, so there is one convolution of the output gradients for each pair of remainders (a phase), with
// the windows turned round, and zeros around the output gradients.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "by_rows.h"
#include "vectors.h"

constexpr int kOutputs = kLanes == 16 ? 8 : 6;
constexpr int kVectors = 2;

struct Shape {
    int64_t height, width, in, out_height, out_width, out, kh, kw, sy, sx, ph, pw;
};

// One window for some outputs: `rows` rows of `run` neighbouring inputs, `row` apart. `from` and `to` have the places of
// an output's first input and of the output in an image. weights: [rows, run, lanes].
struct Windows {
    int64_t rows, run, row, lanes;
    std::vector<int64_t> from, to;
    std::vector<float> weights;
};

template <int P, int J>
static void tile(const Windows &s, int64_t first, int64_t o, const float *image, const float *bias, float *out,
                 int64_t channels) {
    Vector sum[P][J];
    const float *x[P], *w = s.weights.data() + o;
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) {
        x[p] = image + s.from[first + p];
#pragma GCC unroll 4
        for (int j = 0; j < J; j++) sum[p][j] = load(bias + o + j * kLanes);
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
            store(out + s.to[first + p] + c, sum[p][j], std::min<int64_t>(kLanes, channels - c));
        }
}

template <int J, int P = kOutputs>
static void tile_of(int64_t outputs, const Windows &s, int64_t first, int64_t o, const float *image, const float *bias,
                    float *out, int64_t channels) {
    if constexpr (P > 1)
        if (outputs < P) return tile_of<J, P - 1>(outputs, s, first, o, image, bias, out, channels);
    tile<P, J>(s, first, o, image, bias, out, channels);
}

static void convolve(const Windows &s, const float *image, const float *bias, float *out, int64_t channels) {
    const int64_t outputs = s.from.size(), tiles = (outputs + kOutputs - 1) / kOutputs;
    for (int64_t o = 0; o < s.lanes; o += kVectors * kLanes)
        for (int64_t t = 0; t < tiles; t++) {  // of nearly equal size
            const int64_t first = t * outputs / tiles, count = (t + 1) * outputs / tiles - first;
            if (s.lanes - o > kLanes)
                tile_of<kVectors>(count, s, first, o, image, bias, out, channels);
            else
                tile_of<1>(count, s, first, o, image, bias, out, channels);
        }
}

// Copies an image [height, width, channels] into one with zeros around it, whose rows have `width_to` pixels.
static void place(const float *from, int64_t height, int64_t width, int64_t channels, float *to, int64_t width_to,
                  int64_t top, int64_t left) {
    for (int64_t y = 0; y < height; y++)
        std::memcpy(to + ((y + top) * width_to + left) * channels, from + y * width * channels,
                    width * channels * sizeof(float));
}

static int64_t whole_vectors(int64_t channels) { return (channels + kLanes - 1) / kLanes * kLanes; }

// weight: [out, in, kh, kw]; bias: [out], or null where there is none.
extern "C" void convolution(const float *x, const float *weight, const float *bias, float *y, int64_t batch,
                            const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    const int64_t height = s.height + 2 * s.ph, width = s.width + 2 * s.pw;
    Windows windows{s.kh, s.kw * s.in, width * s.in, whole_vectors(s.out), {}, {}, {}};
    windows.weights.resize(s.kh * s.kw * s.in * windows.lanes);
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
                     y + i * s.out_height * s.out_width * s.out, s.out);
        }
    });
}

// g: of y; gradient: of x. With the padded input u = sy*v + r in phase r, ky = r + sy*a sees row v - a of g.
extern "C" void convolution_backward(const float *g, const float *weight, float *gradient, int64_t batch,
                                     const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    const int64_t lanes = whole_vectors(s.in), top = (s.kh - 1) / s.sy, left = (s.kw - 1) / s.sx;  // zeros around g
    const int64_t height = std::max(s.out_height, (s.ph + s.height - 1) / s.sy + 1) + top;
    const int64_t width = std::max(s.out_width, (s.pw + s.width - 1) / s.sx + 1) + left;
    std::vector<Windows> phases;
    for (int64_t ry = 0; ry < s.sy; ry++)
        for (int64_t rx = 0; rx < s.sx; rx++) {
            const int64_t rows = (s.kh - ry + s.sy - 1) / s.sy, columns = (s.kw - rx + s.sx - 1) / s.sx;
            Windows windows{rows, columns * s.out, width * s.out, lanes, {}, {}, {}};
            windows.weights.resize(rows * columns * s.out * lanes);
            for (int64_t a = 0; a < rows; a++)
                for (int64_t b = 0; b < columns; b++)
                    for (int64_t o = 0; o < s.out; o++)
                        for (int64_t c = 0; c < s.in; c++)
                            windows.weights[(((rows - 1 - a) * columns + columns - 1 - b) * s.out + o) * lanes + c] =
                                weight[((o * s.in + c) * s.kh + ry + s.sy * a) * s.kw + rx + s.sx * b];
            for (int64_t y = 0; y < s.height; y++)
                for (int64_t x = 0; x < s.width; x++)
                    if ((y + s.ph) % s.sy == ry && (x + s.pw) % s.sx == rx) {
                        const int64_t row = (y + s.ph) / s.sy + top - rows + 1;
                        const int64_t column = (x + s.pw) / s.sx + left - columns + 1;
                        windows.from.push_back((row * width + column) * s.out);
                        windows.to.push_back((y * s.width + x) * s.in);
                    }
            phases.push_back(std::move(windows));
        }
    const std::vector<float> no_bias(lanes);
    by_rows(batch, threads, [&](int64_t first, int64_t last) {
        std::vector<float> padded(height * width * s.out);
        for (int64_t i = first; i < last; i++) {
            place(g + i * s.out_height * s.out_width * s.out, s.out_height, s.out_width, s.out, padded.data(), width,
                  top, left);
            for (const Windows &windows : phases)
                convolve(windows, padded.data(), no_bias.data(), gradient + i * s.height * s.width * s.in, s.in);
        }
    });
}
