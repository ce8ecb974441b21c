// Groups of neighbouring channels brought to zero mean and unit variance, image by image, channels last, float32:
//
//   y[p, c] = (x[p, c] - mean of c's group) / sqrt(variance of c's group + epsilon),
//
// both over all positions p and the group's channels, the variance as the mean square of what is left without the mean.
// Sums are of all positions of a channel in float32, then in float64.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "by_rows.h"
#include "vectors.h"

struct Shape {
    int64_t positions, channels, groups;
};

// every[c] = the mean of of_channel over the channels of c's group and all positions
template <typename Each>
static void by_groups(const std::vector<float> &of_channel, std::vector<float> &every, const Shape &s, Each each) {
    const int64_t size = s.channels / s.groups;
    for (int64_t c = 0; c < s.channels; c += size) {
        double sum = 0;
        for (int64_t i = c; i < c + size; i++) sum += of_channel[i];
        std::fill_n(every.begin() + c, size, each(sum / (size * s.positions)));
    }
}

// Calls work(c, count) for all channels, kLanes at a time; the last of them with some that had their turn, as one vector.
template <typename Work>
static void by_channels(int64_t channels, Work work) {
    if (channels < kLanes) return work(0, channels);
    by_whole_vectors(channels, [&](int64_t, int64_t c) { work(c, int64_t{kLanes}); });
}

// x, y: [batch, positions, channels]
extern "C" void group_norm(const float *x, float *y, int64_t batch, const Shape *shape, int64_t threads,
                           double epsilon) {
    const Shape s = *shape;
    by_rows(batch, threads, [=](int64_t first, int64_t last) {
        std::vector<float> of_channel(s.channels), mean(s.channels), factor(s.channels);
        for (int64_t i = first; i < last; i++) {
            const float *image = x + i * s.positions * s.channels;
            float *out = y + i * s.positions * s.channels;
            by_channels(s.channels, [&](int64_t c, int64_t n) {
                Vector sum = {};
                for (int64_t p = 0; p < s.positions; p++) sum += load(image + p * s.channels + c, n);
                store(&of_channel[c], sum, n);
            });
            by_groups(of_channel, mean, s, [](double found) { return static_cast<float>(found); });
            by_channels(s.channels, [&](int64_t c, int64_t n) {
                const Vector less = load(&mean[c], n);
                Vector sum = {};
                for (int64_t p = 0; p < s.positions; p++) {
                    const Vector off = load(image + p * s.channels + c, n) - less;
                    sum += off * off;
                }
                store(&of_channel[c], sum, n);
            });
            by_groups(of_channel, factor, s, [=](double found) {
                return static_cast<float>(1 / std::sqrt(found + epsilon));
            });
            by_channels(s.channels, [&](int64_t c, int64_t n) {
                const Vector less = load(&mean[c], n), times = load(&factor[c], n);
                for (int64_t p = 0; p < s.positions; p++) {
                    const int64_t at = p * s.channels + c;
                    store(out + at, (load(image + at, n) - less) * times, n);
                }
            });
        }
    });
}
