// A convolution with windows of 3 x 3, one pixel apart, padded by one pixel of zeros, channels last, float32:
//
//   out[i, y, x, o] = biases[o] + sum_{ky, kx, c} in[i, y + ky - 1, x + kx - 1, c] * weights[o, c, ky, kx],
//
// by tiles.h: a tile of 4 x 4 outputs costs 36 multiplications for a channel of inputs and one of outputs, where the sum
// has 144.
//
// An image is its own: no number of one meets a number of another. A block of tiles at a time, so that what lies between
// in and out stays in the cache: patches transformed, 36 products of matrices, tiles transformed back. In between the
// order is [kHeight tiles][point][tile][channel], so that what is written one after another lies close together. Outputs
// are filled up with zeros there, to whole vectors of any processor: `wide` numbers. Weights are transformed in float64.
//
// An output is off by some 1e-5 of the largest, ten times what a sum is.

#include "by_rows.h"
#include "tiles.h"

constexpr int kHeight = 6, kVectors = kLanes == 16 ? 4 : 2;  // tiles, and vectors of outputs, that a product has in registers
constexpr int64_t kBlock = 2048, kLeast = 4;  // tiles times channels of a block, but at least so many times kHeight tiles

struct Shape {
    int64_t height, width, in, out;
    int64_t turned;  // weights: those of the convolution whose outputs' gradient comes in
    int64_t wide() const { return (out + 15) / 16 * 16; }
};

// A' m
static inline void transform_back(const Vector *m, Vector *y) {
    const Vector near = m[1] + m[2], of_near = m[1] - m[2], far = m[3] + m[4], of_far = m[3] - m[4];
    y[0] = m[0] + near + far;
    y[1] = of_near + 2.0f * of_far;
    y[2] = near + 4.0f * far;
    y[3] = of_near + 8.0f * of_far + m[5];
}

// G w
template <typename Numbers>
static inline void transform_window(const Numbers *w, Numbers *u) {
    const Numbers even = w[0] + w[2], far = w[0] + 4.0 * w[2];
    u[0] = w[0] / 4.0;
    u[1] = (even + w[1]) / -6.0;
    u[2] = (even - w[1]) / -6.0;
    u[3] = (far + 2.0 * w[1]) / 24.0;
    u[4] = (far - 2.0 * w[1]) / 24.0;
    u[5] = w[2];
}

// u[point, c, o] of the windows' weights, for a share of the channels in
static void transform_weights(const float *weights, float *u, int64_t first, int64_t last, const Shape &s) {
    typedef double Numbers __attribute__((vector_size(8 * kLanes)));
    for (int64_t c = first; c < last; c++)
        for (int64_t o = 0; o < s.wide(); o += kLanes) {
            Numbers window[3][3] = {}, rows[kPatch][3], moved[kPatch];
            for (int64_t lane = 0; lane < std::min<int64_t>(kLanes, s.out - o); lane++) {
                const float *from = weights + (s.turned ? c * s.out + o + lane : (o + lane) * s.in + c) * 9;
                for (int k = 0; k < 9; k++) window[k % 3][k / 3][lane] = from[s.turned ? 8 - k : k];
            }
            for (int kx = 0; kx < 3; kx++) {
                transform_window(window[kx], moved);
                for (int y = 0; y < kPatch; y++) rows[y][kx] = moved[y];
            }
            for (int y = 0; y < kPatch; y++) {
                transform_window(rows[y], moved);
                for (int x = 0; x < kPatch; x++)
                    store(u + ((y * kPatch + x) * s.in + c) * s.wide() + o, __builtin_convertvector(moved[x], Vector));
            }
        }
}

// The outputs of a tile that are in the image.
static void tile(const float *m, const float *biases, const Shape &s, int64_t top, int64_t left, float *image) {
    const int64_t rows = std::min<int64_t>(kTile, s.height - top), columns = std::min<int64_t>(kTile, s.width - left);
    by_whole_vectors(s.out, [&](int64_t, int64_t o) {
        Vector half[kTile][kPatch], moved[kTile];
        for (int x = 0; x < kPatch; x++) {
            Vector column[kPatch];
            for (int y = 0; y < kPatch; y++) column[y] = load(m + (y * kPatch + x) * kHeight * s.wide() + o);
            transform_back(column, moved);
            for (int y = 0; y < kTile; y++) half[y][x] = moved[y];
        }
        const Vector bias = biases ? load(biases + o) : Vector{};
        for (int64_t y = 0; y < rows; y++) {
            transform_back(half[y], moved);
            for (int64_t x = 0; x < columns; x++)
                store(image + ((top + y) * s.width + left + x) * s.out + o, moved[x] + bias);
        }
    });
}

// m[t, o] = sum_c v[t, c] u[c, o] for R tiles and J vectors of outputs
template <int R, int J>
static void product(const float *v, const float *u, float *m, int64_t in, int64_t out) {
    Vector sum[R][J] = {};
    for (int64_t c = 0; c < in; c++) {
        Vector weights[J];
#pragma GCC unroll 4
        for (int j = 0; j < J; j++) weights[j] = load(u + c * out + j * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int j = 0; j < J; j++) sum[r][j] += v[r * in + c] * weights[j];
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int j = 0; j < J; j++) store(m + r * out + j * kLanes, sum[r][j]);
}

template <int J, int R = kHeight>
static void product_of(int64_t tiles, const float *v, const float *u, float *m, int64_t in, int64_t out) {
    if constexpr (R > 1)
        if (tiles < R) return product_of<J, R - 1>(tiles, v, u, m, in, out);
    product<R, J>(v, u, m, in, out);
}

// Of one point: all tiles of a block, J vectors of outputs.
template <int J>
static void products(int64_t tiles, const float *v, const float *u, float *m, int64_t in, int64_t out) {
    for (int64_t t = 0; t < tiles; t += kHeight, v += kPoints * kHeight * in, m += kPoints * kHeight * out)
        product_of<J>(std::min<int64_t>(kHeight, tiles - t), v, u, m, in, out);
}

static void images(const float *in, const float *u, const float *biases, float *out, int64_t first, int64_t last,
                   const Shape &s) {
    const Images inputs{s.height, s.width, s.in};
    const int64_t wide = s.wide(), all = inputs.tiles();
    const int64_t block = std::max<int64_t>(kLeast, kBlock / std::max(s.in, wide) / kHeight) * kHeight;
    const Lines v(kPoints * block * s.in), m(kPoints * block * wide);
    const auto begin = [](int64_t t) { return t / kHeight * kPoints * kHeight + t % kHeight; };  // times channels
    for (int64_t start = first * all; start < last * all; start += block) {
        const int64_t tiles = std::min(block, last * all - start);
        const auto each = [&](auto work) {  // work(tile of the block, image, top, left)
            for (int64_t t = 0; t < tiles; t++) {
                const int64_t i = (start + t) / all, place = (start + t) % all;
                work(t, i, place / inputs.across() * kTile, place % inputs.across() * kTile);
            }
        };
        each([&](int64_t t, int64_t i, int64_t top, int64_t left) {
            float *points = v + begin(t) * s.in;
            to_points<kPatch, transform_patch>(
                in + i * inputs.numbers(), inputs, top - 1, left - 1,
                [=, apart = kHeight * s.in](int64_t point, int64_t, int64_t c, Vector moved) {
                    store(points + point * apart + c, moved);
                });
        });
        for (int64_t point = 0; point < kPoints; point++) {
            const float *from = v + point * kHeight * s.in, *weights = u + point * s.in * wide;
            float *to = m + point * kHeight * wide;
            int64_t o = 0;
            for (; o + kVectors * kLanes <= wide; o += kVectors * kLanes)
                products<kVectors>(tiles, from, weights + o, to + o, s.in, wide);
            for (; o + 2 * kLanes <= wide; o += 2 * kLanes)
                products<2>(tiles, from, weights + o, to + o, s.in, wide);
            for (; o < wide; o += kLanes) products<1>(tiles, from, weights + o, to + o, s.in, wide);
        }
        each([&](int64_t t, int64_t i, int64_t top, int64_t left) {
            tile(m + begin(t) * wide, biases, s, top, left, out + i * s.height * s.width * s.out);
        });
    }
}

// u: [36, in, wide]. weights: [out, in, 3, 3]; turned, for the gradient of what a convolution was given: its weights,
// [in, out, 3, 3], which are taken with each window turned round.
extern "C" void winograd_weights(const float *weights, float *u, const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    by_rows(s.in, threads, [=](int64_t first, int64_t last) { transform_weights(weights, u, first, last, s); });
}

// in: [batch, height, width, in], biases: [out] or null, out: [batch, height, width, out].
extern "C" void winograd(const float *in, const float *u, const float *biases, float *out, int64_t batch,
                         const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    by_rows(batch, threads, [=](int64_t first, int64_t last) { images(in, u, biases, out, first, last, s); });
}
