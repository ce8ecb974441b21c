// tanh x = 1 - 2 / (1 + e^{2x}), float32.
//
// e^{2x} = 2^t with t = 2x log2(e), and 2^t = 2^k 2^r with k the integer next to t. Adding 1.5 2^23 to t rounds it to k,
// which then stands in the sum's lowest bits. 2^r = e^{r ln 2} is its Taylor polynomial of degree 6: with |r| <= 1/2
// the next term is below 1.3e-7. What the error of e^{2x} is relative to e^{2x}, that of tanh x is half of at most.
// Beyond |t| = 40 the result is rounded to 1 or -1 all the same.

#include "by_rows.h"
#include "vectors.h"

static inline Vector tanh_of(Vector x) {
    Vector t = x * 2.88539008f;
    t = t < -40.0f ? all(-40.0f) : t;
    t = t > 40.0f ? all(40.0f) : t;
    const Vector sum = t + 12582912.0f, r = t - (sum - 12582912.0f);
    Vector power = all(1.54035304e-4f);  // (ln 2)^n / n! from n = 6 down
    power = power * r + 1.33335581e-3f;
    power = power * r + 9.61812911e-3f;
    power = power * r + 5.55041087e-2f;
    power = power * r + 2.40226507e-1f;
    power = power * r + 6.93147181e-1f;
    power = power * r + 1.0f;
    power = reinterpret_cast<Vector>(reinterpret_cast<Integers>(power) + (reinterpret_cast<Integers>(sum) << 23));
    const Vector result = 1.0f - 2.0f / (1.0f + power);
    return x != x ? x : result;  // a NaN's bits are no exponent
}

extern "C" void tanh_of(const float *x, float *y, int64_t length, int64_t threads) {
    by_rows(length, threads, [=](int64_t first, int64_t last) {
        by_vectors(last - first, [from = x + first, to = y + first](int64_t i, int64_t count) {
            store(to + i, tanh_of(load(from + i, count)), count);
        });
    });
}
