// The clips of backpropagation clipping, row by row, float32: each row is read from memory once and written once.
//
// Sums are of at most kRun terms in float32, then in float64: a norm is right to float32's own rounding.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "by_rows.h"

constexpr int64_t kLanes = 64, kRun = 32;  // terms that are added in float32, a lane

// sum_i of terms(i), in lanes that a compiler turns into vectors
template <typename Terms>
static double sum(int64_t length, Terms terms) {
    double total = 0;
    int64_t i = 0;
    while (i + kLanes <= length) {
        float lanes[kLanes] = {};
        const int64_t end = std::min(i + kRun * kLanes, length / kLanes * kLanes);
        for (; i < end; i += kLanes)
            for (int64_t lane = 0; lane < kLanes; lane++) lanes[lane] += terms(i + lane);
        for (int64_t lane = 0; lane < kLanes; lane++) total += lanes[lane];
    }
    for (; i < length; i++) total += terms(i);
    return total;
}

static double l2(const float *x, int64_t length) {
    return std::sqrt(sum(length, [x](int64_t i) { return x[i] * x[i]; }));
}

// l1 over positions, l2 over channels, of [positions, channels]
static double l1_l2(const float *x, int64_t positions, int64_t channels, std::vector<float> &run,
                    std::vector<double> &total) {
    std::fill(total.begin(), total.end(), 0.0);
    for (int64_t p = 0; p < positions;) {
        std::fill(run.begin(), run.end(), 0.0f);
        for (const int64_t end = std::min(p + kRun, positions); p < end; p++)
            for (int64_t c = 0; c < channels; c++) run[c] += std::fabs(x[p * channels + c]);
        for (int64_t c = 0; c < channels; c++) total[c] += run[c];
    }
    double squares = 0;
    for (const double each : total) squares += each * each;
    return std::sqrt(squares);
}

static void scaled(const float *x, float *out, int64_t length, float factor) {
    for (int64_t i = 0; i < length; i++) out[i] = x[i] * factor;
}

// Norms whose square is beyond float32. A factor for a larger one could be denormal, and be rounded by half of it.
constexpr double kLargest = 1.844e19;

// min(1, bound / norm); where the norm is no number up to kLargest the row is written as zeros, and 1 returned
static float clip(const float *x, float *out, int64_t length, double norm, double bound) {
    if (!(norm <= kLargest)) {
        std::fill(out, out + length, 0.0f);
        return 1;
    }
    const float factor = static_cast<float>(bound / std::max(norm, bound));
    scaled(x, out, length, factor);
    return factor;
}

// out = x min(1, bound / |x|_2), and the factors
extern "C" void clip_rows(const float *x, float *out, float *factors, int64_t rows, int64_t length, int64_t threads,
                          double bound) {
    by_rows(rows, threads, [=](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; r++) {
            const float *row = x + r * length;
            factors[r] = clip(row, out + r * length, length, l2(row, length), bound);
        }
    });
}

// the gradient of that: (g - y <y, g> / bound^2) factor where y was clipped, else g
extern "C" void clip_rows_backward(const float *y, const float *factors, const float *g, float *out, int64_t rows,
                                   int64_t length, int64_t threads, double bound) {
    by_rows(rows, threads, [=](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; r++) {
            const float *row_y = y + r * length, *row_g = g + r * length;
            const float factor = factors[r];
            float *row = out + r * length;
            if (factor == 1) {
                std::copy(row_g, row_g + length, row);
                continue;
            }
            const double dot = sum(length, [=](int64_t i) { return row_y[i] * row_g[i]; });
            const float along = static_cast<float>(-dot * factor / (bound * bound));
            for (int64_t i = 0; i < length; i++) row[i] = row_g[i] * factor + row_y[i] * along;
        }
    });
}

// out = g min(1, bound / |||g|||), of rows [positions, channels], by the l1-l2 norm
extern "C" void clip_maps(const float *g, float *out, int64_t rows, int64_t positions, int64_t channels,
                          int64_t threads, double bound) {
    by_rows(rows, threads, [=](int64_t first, int64_t last) {
        std::vector<float> run(channels);
        std::vector<double> total(channels);
        for (int64_t r = first; r < last; r++) {
            const int64_t start = r * positions * channels;
            clip(g + start, out + start, positions * channels, l1_l2(g + start, positions, channels, run, total), bound);
        }
    });
}
