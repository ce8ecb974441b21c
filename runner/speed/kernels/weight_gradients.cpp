// Per-example weight gradients of a convolution, channels last, float32:
//
//   out[i, ky, kx, c, o] = sum_{v, y, x} a[i, v, y*sy + ky*dy, x*sx + kx*dx, c] * g[i, v, y, x, o]    (a zero-padded)
//
// v counts the images of an example (its views): one, as a rule.
// One example at a time, so that its images stay in the cache. A tile of R consecutive (kx, c) by J vectors of
// output channels is kept in registers over all positions: R broadcasts and J loads for R*J multiply-adds, no
// unfolded copy of the input. The squared norm is taken while a finished tile is still in registers, the
// bias's gradient when an example's output gradients are first read.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "by_rows.h"
#include "vectors.h"

constexpr int kRows = kLanes == 16 ? 12 : 6;  // with two vectors each, three quarters of the registers hold sums
constexpr int kVectors = 2;

struct Shape {
    int64_t height, width, in, out_height, out_width, out, kh, kw, sy, sx, ph, pw, dy, dx, views;
};

struct Tile {
    const float *a, *g;
    const int64_t *places;  // of the first input of each output position, from `a`
    int64_t positions, g_column;
};

template <int R, int J>
static float accumulate(const Tile &t, float *out, int64_t out_row) {
    Vector sum[R][J] = {};
    const float *g = t.g;
    for (int r = 0; r < R; r++)  // the memory that the tile will be written to is not waited for then
        for (int j = 0; j < J; j++) __builtin_prefetch(out + r * out_row + j * kLanes, 1);
    for (int64_t p = 0; p < t.positions; p++, g += t.g_column) {
        const float *a = t.a + t.places[p];
        Vector gradient[J];
#pragma GCC unroll 4
        for (int j = 0; j < J; j++) gradient[j] = load(g + j * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int j = 0; j < J; j++) sum[r][j] += a[r] * gradient[j];
    }
    Vector squares[2 * J] = {};  // several, as each addition waits for the one before
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int j = 0; j < J; j++) {
            squares[r % 2 * J + j] += sum[r][j] * sum[r][j];
            store(out + r * out_row + j * kLanes, sum[r][j]);
        }
    float lanes[kLanes], total = 0;
    for (int n = 1; n < 2 * J; n++) squares[0] += squares[n];
    store(lanes, squares[0]);
    for (int lane = 0; lane < kLanes / 2; lane++) lanes[lane] += lanes[lane + kLanes / 2];
    for (int lane = 0; lane < kLanes / 4; lane++) lanes[lane] += lanes[lane + kLanes / 4];
    for (int lane = 0; lane < kLanes / 4; lane++) total += lanes[lane];
    return total;
}

template <int J, int R = kRows>
static float accumulate_rows(int rows, const Tile &t, float *out, int64_t out_row) {
    if constexpr (R > 1)
        if (rows < R) return accumulate_rows<J, R - 1>(rows, t, out, out_row);
    return accumulate<R, J>(t, out, out_row);
}

// biases[o] = sum over positions of g[position, o], for J vectors of channels, the last of `count`: row by row of the image,
// as a shorter sum rounds less.
template <int J>
static void sum_positions(const float *g, float *biases, const Shape &s, int64_t count) {
    Vector sum[J] = {};
    for (int64_t y = 0; y < s.views * s.out_height; y++) {
        Vector row[J] = {};
        for (int64_t x = 0; x < s.out_width; x++, g += s.out)
            for (int j = 0; j < J; j++) row[j] += load(g + j * kLanes, j + 1 < J ? kLanes : count);
        for (int j = 0; j < J; j++) sum[j] += row[j];
    }
    for (int j = 0; j < J; j++) store(biases + j * kLanes, sum[j], j + 1 < J ? kLanes : count);
}

// One example: its images `a` padded, `g` and `out` with `lanes` (a multiple of kLanes) output channels, the surplus ones zero.
static float example(const float *a, const float *g, float *out, const Shape &s, int64_t lanes,
                     const std::vector<int64_t> &places) {
    const int64_t padded_width = s.width + 2 * s.pw;
    const bool joined = s.dx == 1;  // then the columns of a kernel row are neighbours in memory
    const int64_t runs = joined ? 1 : s.kw, run = joined ? s.kw * s.in : s.in;
    const int64_t tiles = (run + kRows - 1) / kRows;
    double total = 0;  // a float would lose the squares of small tiles after a large one
    Tile t{nullptr, nullptr, places.data(), (int64_t)places.size(), lanes};
    for (int64_t ky = 0; ky < s.kh; ky++)
        for (int64_t kx = 0; kx < runs; kx++) {
            const float *base = a + (ky * s.dy * padded_width + kx * s.dx) * s.in;
            float *rows_out = out + (ky * s.kw * s.in + kx * s.in) * lanes;
            for (int64_t tile = 0; tile < tiles; tile++) {  // of nearly equal height
                const int64_t first = tile * run / tiles, rows = (tile + 1) * run / tiles - first;
                t.a = base + first;
                for (int64_t o = 0; o < lanes; o += kVectors * kLanes) {
                    t.g = g + o;
                    float *tile_out = rows_out + first * lanes + o;
                    total += lanes - o > kLanes ? accumulate_rows<kVectors>(rows, t, tile_out, lanes)
                                                : accumulate_rows<1>(rows, t, tile_out, lanes);
                }
            }
        }
    return total;
}

static void examples(const float *a, const float *g, float *out, float *squares, float *biases, int64_t first,
                     int64_t last, const Shape &s) {
    const int64_t lanes = (s.out + kLanes - 1) / kLanes * kLanes, positions = s.views * s.out_height * s.out_width;
    const int64_t padded_width = s.width + 2 * s.pw, padded_height = s.height + 2 * s.ph;
    const int64_t images = s.views * s.height * s.width * s.in, weights = s.kh * s.kw * s.in;
    const bool pads = s.ph || s.pw, widens = lanes != s.out;
    std::vector<float> padded(pads ? s.views * padded_height * padded_width * s.in : 0);
    std::vector<float> wide(widens ? positions * lanes : 0), wide_out(widens ? weights * lanes : 0);
    std::vector<int64_t> places;
    for (int64_t v = 0; v < s.views; v++)
        for (int64_t y = 0; y < s.out_height; y++)
            for (int64_t x = 0; x < s.out_width; x++)
                places.push_back(((v * padded_height + y * s.sy) * padded_width + x * s.sx) * s.in);
    for (int64_t i = first; i < last; i++) {
        const float *image_a = a + i * images, *image_g = g + i * positions * s.out;
        float *image_out = out + i * weights * s.out;
        for (int64_t o = 0; biases && o < s.out; o += kVectors * kLanes) {
            const int64_t left = s.out - o;
            float *sums = biases + i * s.out + o;
            if (left > kLanes)
                sum_positions<kVectors>(image_g + o, sums, s, std::min<int64_t>(kLanes, left - kLanes));
            else
                sum_positions<1>(image_g + o, sums, s, left);
        }
        if (pads) {
            for (int64_t line = 0; line < s.views * s.height; line++) {
                const int64_t y = line / s.height * padded_height + line % s.height + s.ph;
                std::memcpy(&padded[(y * padded_width + s.pw) * s.in], image_a + line * s.width * s.in,
                            s.width * s.in * sizeof(float));
            }
            image_a = padded.data();
        }
        if (widens) {
            for (int64_t t = 0; t < positions; t++)
                std::memcpy(&wide[t * lanes], image_g + t * s.out, s.out * sizeof(float));
            squares[i] = example(image_a, wide.data(), wide_out.data(), s, lanes, places);
            for (int64_t w = 0; w < weights; w++)
                std::memcpy(image_out + w * s.out, &wide_out[w * lanes], s.out * sizeof(float));
        } else {
            squares[i] = example(image_a, image_g, image_out, s, lanes, places);
        }
    }
}

// biases: [batch, out], or null where there are none.
extern "C" void weight_gradients(const float *a, const float *g, float *out, float *squares, float *biases,
                                 int64_t batch, const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    by_rows(batch, threads, [=](int64_t first, int64_t last) { examples(a, g, out, squares, biases, first, last, s); });
}
