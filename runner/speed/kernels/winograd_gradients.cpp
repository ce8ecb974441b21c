// Per-example weight gradients of a convolution with windows of 3 x 3, one pixel apart, channels last, float32:
//
//   out[i, ky, kx, c, o] = sum_{v, y, x} a[i, v, y + ky - ph, x + kx - pw, c] * g[i, v, y, x, o],    v the example's images,
//
// by the transpose of tiles.h: with the tiles g_t of the output gradients and the patches a_t that they saw,
//
//   gradient_co = G' ( sum_t (B' a_tc B) * (A g_to A') ) G,     * number by number:
//
// 36 multiplications a tile, where the sum has 144. The squared norm is of the numbers that are written, while they are
// in registers. A point of A g A' is the sum over a tile: the bias's gradient.

#include <cstring>

#include "by_rows.h"
#include "tiles.h"

constexpr int kWindow = 3, kRun = 16;  // tiles that are added up by themselves: a shorter sum rounds less
constexpr float kNear = -1.0f / 6;
constexpr int kSum = kPatch + 1;  // the point that is the sum over a tile, times kNear twice

struct Shape {
    int64_t height, width, in, out_height, out_width, out, kh, kw, sy, sx, ph, pw, dy, dx, views;
};

// A g, with the factors that G' has at each point: 4 output gradients to 6 points
static inline void transform_gradients(const Vector *g, Vector *t) {
    const Vector even = g[0] + g[2], odd = g[1] + g[3], far = g[0] + 4.0f * g[2], of_far = 2.0f * g[1] + 8.0f * g[3];
    t[0] = g[0] * 0.25f;
    t[1] = (even + odd) * kNear;
    t[2] = (even - odd) * kNear;
    t[3] = (far + of_far) * (1.0f / 24);
    t[4] = (far - of_far) * (1.0f / 24);
    t[5] = g[3];
}

// G' s, without these factors: 6 points to 3 weights
static inline void transform_back(const Vector *s, Vector *w) {
    const Vector near = s[1] + s[2], far = s[3] + s[4];
    w[0] = s[0] + near + far;
    w[1] = (s[1] - s[2]) + 2.0f * (s[3] - s[4]);
    w[2] = near + 4.0f * far + s[5];
}

// At least so many numbers, in an odd number of the cache's lines: the cache then keeps what is written to every point.
static int64_t line_apart(int64_t count) { return ((count + 15) / 16 | 1) * 16; }

// A vector of channels of inputs by one of outputs. Returns the squares of those from `row` and `lane` on, as the others
// belong to another block too, which computes the same. v and m: [point][apart], which begins with [tile][kLanes].
static float block(const float *v, const float *m, int64_t tiles, int64_t apart, float *out, const Shape &s, int64_t row,
                   int64_t lane) {
    Vector half[kLanes][kWindow][kPatch], squares = {};
    for (int y = 0; y < kPatch; y++) {
        Vector points[kLanes][kPatch];
        for (int x = 0; x < kPatch; x++, v += apart, m += apart) {
            for (int64_t t = 0; t < tiles;) {
                Vector sum[kLanes] = {};
                const bool first = t == 0;
                for (const int64_t end = std::min(t + kRun, tiles); t < end; t++) {
                    const Vector gradient = load(m + t * kLanes);
#pragma GCC unroll 16
                    for (int r = 0; r < kLanes; r++) sum[r] += v[t * kLanes + r] * gradient;
                }
#pragma GCC unroll 16
                for (int r = 0; r < kLanes; r++) points[r][x] = first ? sum[r] : points[r][x] + sum[r];
            }
        }
        for (int r = 0; r < kLanes; r++) {
            Vector moved[kWindow];
            transform_back(points[r], moved);
            for (int x = 0; x < kWindow; x++) half[r][x][y] = moved[x];
        }
    }
    for (int64_t r = row; r < kLanes; r++)
        for (int x = 0; x < kWindow; x++) {
            Vector moved[kWindow];
            transform_back(half[r][x], moved);
            for (int y = 0; y < kWindow; y++) {
                squares += moved[y] * moved[y];
                store(out + ((y * kWindow + x) * s.in + r) * s.out, moved[y]);
            }
        }
    float total = 0;
    for (; lane < kLanes; lane++) total += squares[lane];
    return total;
}

static void examples(const float *a, const float *g, float *out, float *squares, float *biases, int64_t first,
                     int64_t last, const Shape &s) {
    const Images inputs{s.height, s.width, s.in}, outputs{s.out_height, s.out_width, s.out};
    const int64_t tiles = s.views * outputs.tiles(), apart = line_apart(tiles * kLanes), vector = kPoints * apart;
    const Lines v((s.in + kLanes - 1) / kLanes * vector), m((s.out + kLanes - 1) / kLanes * vector);
    for (int64_t i = first; i < last; i++) {
        for (int64_t t = 0; t < tiles; t++) {
            const auto into = [=](float *points) {
                return [=](int64_t point, int64_t n, int64_t, Vector moved) {
                    store(points + n / kLanes * vector + point * apart + t * kLanes, moved);
                };
            };
            const int64_t image = i * s.views + t / outputs.tiles(), place = t % outputs.tiles();
            const int64_t top = place / outputs.across() * kTile, left = place % outputs.across() * kTile;
            to_points<kPatch, transform_patch>(a + image * inputs.numbers(), inputs, top - s.ph, left - s.pw, into(v + 0));
            to_points<kTile, transform_gradients>(g + image * outputs.numbers(), outputs, top, left, into(m + 0));
        }
        if (biases)
            by_whole_vectors(s.out, [&](int64_t n, int64_t o) {
                Vector total = {};
                for (int64_t t = 0; t < tiles; t++) total += load(m + n / kLanes * vector + kSum * apart + t * kLanes);
                store(biases + i * s.out + o, total / (kNear * kNear));
            });
        double total = 0;  // a float would lose the squares of small blocks after a large one
        float *weights = out + i * kWindow * kWindow * s.in * s.out;
        by_whole_vectors(s.in, [&](int64_t k, int64_t c) {
            by_whole_vectors(s.out, [&](int64_t n, int64_t o) {  // the inner loop: a row of `out` is written in one go
                total += block(v + k / kLanes * vector, m + n / kLanes * vector, tiles, apart, weights + c * s.out + o, s,
                               k - c, n - o);
            });
        });
        squares[i] = total;
    }
}

// a: [batch * views, height, width, in], g: [batch * views, out_height, out_width, out], out: [batch, 3, 3, in, out],
// squares: [batch], biases: [batch, out], or null where there are none.
extern "C" void winograd_gradients(const float *a, const float *g, float *out, float *squares, float *biases,
                                   int64_t batch, const Shape *shape, int64_t threads) {
    const Shape s = *shape;
    by_rows(batch, threads, [=](int64_t first, int64_t last) { examples(a, g, out, squares, biases, first, last, s); });
}
