// F(4 x 4, 3 x 3) of Winograd (Lavin and Gray, 2016, section 4.3): the transforms, and numbers that its kernels share.
//
// A convolution with windows of 3 x 3, one pixel apart, becomes 36 products of matrices, one for each point:
//
//   outputs = A' ( sum_c (G weights_c G') * (B' patch_c B) ) A,     * number by number,
//
// for a tile of 4 x 4 outputs, from the 6 x 6 inputs that they see. Channels are innermost, and at least kLanes.

#pragma once

#include <algorithm>
#include <cstdint>

#include "vectors.h"

constexpr int kPatch = 6, kTile = 4, kPoints = kPatch * kPatch;

struct Images {
    int64_t height, width, channels;
    int64_t down() const { return (height + kTile - 1) / kTile; }
    int64_t across() const { return (width + kTile - 1) / kTile; }
    int64_t tiles() const { return down() * across(); }
    int64_t numbers() const { return height * width * channels; }
};

// B' d: 6 inputs to 6 points
static inline void transform_patch(const Vector *d, Vector *t) {
    const Vector even = d[4] - 4.0f * d[2], odd = d[3] - 4.0f * d[1];
    const Vector far = d[4] - d[2], twice = 2.0f * (d[3] - d[1]);
    t[0] = 4.0f * d[0] - 5.0f * d[2] + d[4];
    t[1] = even + odd;
    t[2] = even - odd;
    t[3] = far + twice;
    t[4] = far - twice;
    t[5] = 4.0f * d[1] - 5.0f * d[3] + d[5];
}

// The N x N numbers of every channel from (top, left) on, outside the image zeros, moved by `transform`, from N to kPatch
// numbers, in both directions: to(point, i, c, moved) is given a point of the channels from c on.
template <int N, void (*transform)(const Vector *, Vector *), typename To>
static void to_points(const float *image, const Images &s, int64_t top, int64_t left, To to) {
    by_whole_vectors(s.channels, [&](int64_t i, int64_t c) {
        Vector rows[kPatch][N], moved[kPatch];
        for (int x = 0; x < N; x++) {
            Vector column[N];
            for (int y = 0; y < N; y++) {
                const int64_t row = top + y, place = left + x;
                const bool inside = row >= 0 && row < s.height && place >= 0 && place < s.width;
                column[y] = inside ? load(image + (row * s.width + place) * s.channels + c) : Vector{};
            }
            transform(column, moved);
            for (int y = 0; y < kPatch; y++) rows[y][x] = moved[y];
        }
        for (int y = 0; y < kPatch; y++) {
            transform(rows[y], moved);
            for (int x = 0; x < kPatch; x++) to(y * kPatch + x, i, c, moved[x]);
        }
    });
}
