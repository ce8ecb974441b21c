// Pairs of standard normal numbers from pairs of 63 random bits (Box and Muller, 1958), and noisy means, in float64.
//
// Of a pair (a, b), the radius is sqrt(-2 ln u) with u = (a + (b mod 2^20 + 1/2) / 2^20) / 2^63, and the angle is
// floor(b / 2^20) / 2^43 turns. An integer below 2^52 becomes a float64 by standing in the last bits of 2^52.
//
// ln u = k ln 2 + ln m with m in [sqrt 1/2, sqrt 2), and ln m = 2 s (1 + s^2/3 + s^4/5 + ...) with s = (m-1)/(m+1). As
// |s| < 0.172, the terms after s^20/21 are below 2e-17. An angle is k quarters of a turn and a rest of at most half a
// quarter, whose sine and cosine are their Taylor polynomials of degree 15 and 16: the next terms are below 5e-17.

#pragma GCC optimize("no-math-errno")  // else GCC takes the roots of a vector one by one

#include <cmath>

#include "by_rows.h"
#include "vectors.h"

constexpr int kPairs = kLanes / 2;

typedef double Doubles __attribute__((vector_size(8 * kPairs)));
typedef int64_t Words __attribute__((vector_size(8 * kPairs)));
typedef float Floats __attribute__((vector_size(4 * kPairs)));

static inline Doubles doubles(Words below) {  // 0 <= below < 2^52
    return reinterpret_cast<Doubles>(below | 0x4330000000000000) - 4503599627370496.0;
}

static inline Doubles logarithm(Doubles u) {  // of normal numbers above 0
    const Words bits = reinterpret_cast<Words>(u);
    const Words shifted = bits + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
    const Words exponent = (shifted >> 52) & 0x7ff;  // k + 1023
    const Doubles m = reinterpret_cast<Doubles>(bits - ((exponent - 1023) << 52));
    const Doubles s = (m - 1.0) / (m + 1.0), square = s * s;
    Doubles sum = square * (1.0 / 21) + 1.0 / 19;
    for (int n = 17; n > 0; n -= 2) sum = sum * square + 1.0 / n;
    return (doubles(exponent) - 1023.0) * 0.69314718055994530942 + 2.0 * s * sum;
}

static inline void pairs_of(Words a, Words b, Doubles &first, Doubles &second) {
    const Doubles whole = doubles(a >> 31) * 2147483648.0 + doubles(a & 0x7fffffff);
    const Doubles u = whole * 0x1p-63 + (doubles(b & 0xfffff) + 0.5) * 0x1p-83;
    const Doubles squared = -2.0 * logarithm(u);
    Doubles radius;
    for (int i = 0; i < kPairs; i++) radius[i] = std::sqrt(squared[i]);

    const Doubles quarters = doubles(b >> 20) * 0x1p-41;
    const Doubles sum = quarters + 6755399441055744.0;  // 1.5 2^52: the nearest integer stands in the last bits
    const Words quarter = reinterpret_cast<Words>(sum) & 3;
    const Doubles x = (quarters - (sum - 6755399441055744.0)) * 1.57079632679489661923, square = x * x;
    Doubles sine = square * (-1.0 / 1307674368000) + 1.0 / 6227020800;
    sine = sine * square - 1.0 / 39916800;
    sine = sine * square + 1.0 / 362880;
    sine = sine * square - 1.0 / 5040;
    sine = sine * square + 1.0 / 120;
    sine = sine * square - 1.0 / 6;
    sine = (sine * square + 1.0) * x;
    Doubles cosine = square * (1.0 / 20922789888000) - 1.0 / 87178291200;
    cosine = cosine * square + 1.0 / 479001600;
    cosine = cosine * square - 1.0 / 3628800;
    cosine = cosine * square + 1.0 / 40320;
    cosine = cosine * square - 1.0 / 720;
    cosine = cosine * square + 1.0 / 24;
    cosine = cosine * square - 0.5;
    cosine = cosine * square + 1.0;

    const Words odd = -(quarter & 1);
    const Words c = reinterpret_cast<Words>(cosine), s = reinterpret_cast<Words>(sine);
    const Words cosine_sign = ((quarter + 1) & 2) << 62, sine_sign = (quarter & 2) << 62;
    const Words along = ((c & ~odd) | (s & odd)) ^ cosine_sign, across = ((s & ~odd) | (c & odd)) ^ sine_sign;
    first = radius * reinterpret_cast<Doubles>(along);
    second = radius * reinterpret_cast<Doubles>(across);
}

// Calls work(i, count) for parts [i, i + count) of a range; count is kPairs, which a compiler knows, but for the rest.
template <typename Work>
static inline void by_pairs(int64_t begin, int64_t end, Work work) {
    int64_t i = begin;
    for (; i + kPairs <= end; i += kPairs) work(i, int64_t{kPairs});
    if (i < end) work(i, end - i);
}

// Replaces bits [2, pairs] by standard normal numbers: the first of all pairs, then the second.
extern "C" void normal_of(int64_t *bits, int64_t pairs, int64_t threads) {
    by_rows(pairs, threads, [=](int64_t begin, int64_t end) {
        by_pairs(begin, end, [=](int64_t i, int64_t count) __attribute__((always_inline)) {
            Words a = {}, b = {};
            std::memcpy(&a, bits + i, 8 * count);
            std::memcpy(&b, bits + pairs + i, 8 * count);
            Doubles first, second;
            pairs_of(a, b, first, second);
            std::memcpy(bits + i, &first, 8 * count);
            std::memcpy(bits + pairs + i, &second, 8 * count);
        });
    });
}

// mean [count] = (sum + std normal) / denominator, with sum + std normal rounded to a multiple of 2^-52 anchor / 1.5.
extern "C" void mean_of(const float *sum, const double *normal, float *mean, int64_t count, int64_t threads, double std,
                        double anchor, double denominator) {
    by_rows(count, threads, [=](int64_t begin, int64_t end) {
        by_pairs(begin, end, [=](int64_t i, int64_t some) __attribute__((always_inline)) {
            Floats total = {};
            Doubles z = {};
            std::memcpy(&total, sum + i, 4 * some);
            std::memcpy(&z, normal + i, 8 * some);
            const Doubles noisy = __builtin_convertvector(total, Doubles) + std * z;
            const Doubles rounded = (noisy + anchor) - anchor;
            const Floats quotient = __builtin_convertvector(rounded / denominator, Floats);
            std::memcpy(mean + i, &quotient, 4 * some);
        });
    });
}
