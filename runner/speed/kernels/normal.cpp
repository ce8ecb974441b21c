// Standard normal numbers, the very stream of PyTorch's generator for at least 16 numbers in a row.
//
// Its words are those of the Mersenne Twister (Matsumoto and Nishimura, 1998), and the lowest 24 bits of one make a
// uniform number. Of 16 in a row, u from the first eight and v from the last give, by Box and Muller (1958),
// sqrt(-2 ln(1 - u)) cos(2 pi v), and with the sine the number eight places on. If the length is no multiple of 16, 16
// more words replace the last 16 numbers.

#include <algorithm>

#include "vectors.h"

typedef Some<8>::Numbers Eight;
typedef int32_t Bits __attribute__((vector_size(sizeof(Eight))));

constexpr int kWords = 624, kAhead = 397, kHalf = 8;

struct Generator {  // as `torch.Generator.get_state` has it: `left` counts the words up to the next twist, and one
    uint64_t seed;
    int32_t left, seeded;
    uint64_t next, words[kWords];
};

static uint32_t twisted(uint32_t word, uint32_t after) {
    return (((word & 0x80000000u) | (after & 0x7fffffffu)) >> 1) ^ (-(after & 1u) & 0x9908b0dfu);
}

static void twist(uint32_t *w) {
    for (int k = 0; k < kWords - kAhead; k++) w[k] = w[k + kAhead] ^ twisted(w[k], w[k + 1]);
    for (int k = kWords - kAhead; k < kWords - 1; k++) w[k] = w[k + kAhead - kWords] ^ twisted(w[k], w[k + 1]);
    w[kWords - 1] = w[kAhead - 1] ^ twisted(w[kWords - 1], w[0]);
}

static float uniform(uint32_t w) {
    w ^= w >> 11;
    w ^= (w << 7) & 0x9d2c5680u;
    w ^= (w << 15) & 0xefc60000u;
    return static_cast<float>(static_cast<int32_t>((w ^ (w >> 18)) & 0xffffffu)) * 0x1p-24f;
}

// -2 ln u for u from 2^-24 to 1: ln u = e ln 2 + ln m with m from sqrt(1/2) on, by the polynomial of Cephes' logf.
static inline Eight minus_two_log(Eight u) {
    const Bits exponent = (reinterpret_cast<Bits>(u) - 0x3f3504f3) >> 23;
    const Eight x = reinterpret_cast<Eight>(reinterpret_cast<Bits>(u) - (exponent << 23)) - 1.0f;
    const Eight e = __builtin_convertvector(exponent, Eight);
    Eight p = Eight{} + 7.0376836292e-2f;
    for (const float c : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                          2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f})
        p = p * x + c;
    return -2.0f * (e * 0.693359375f + (x + (e * -2.12194440e-4f + x * x * (p * x - 0.5f))));
}

static inline Eight root(Eight x) {  // by Newton's method for its inverse; of 0 it is 0
    Eight inverse = reinterpret_cast<Eight>(0x5f3759df - (reinterpret_cast<Bits>(x) >> 1));
    for (int n = 0; n < 3; n++) inverse = inverse * (1.5f - 0.5f * x * inverse * inverse);
    return x * inverse;
}

static void to_normal(float *numbers, int64_t length) {
    for (float *u = numbers, *v = u + kHalf; u + 2 * kHalf <= numbers + length; u += 2 * kHalf, v += 2 * kHalf) {
        const Eight r = root(minus_two_log(1.0f - load<Eight>(u))), t = 4.0f * load<Eight>(v), sum = t + 12582912.0f;
        const Eight x = (t - (sum - 12582912.0f)) * 1.57079633f, z = x * x;  // within an eighth of a turn
        const Bits quarter = reinterpret_cast<Bits>(sum), odd = (quarter & 1) != 0;  // in the sum's lowest bits
        const Eight s = x + x * z * (z * (8.33333333e-3f + z * (z * 2.75573192e-6f - 1.98412698e-4f)) - 0.166666667f);
        const Eight c = 1.0f + z * (z * (4.16666667e-2f + z * (z * 2.48015873e-5f - 1.38888889e-3f)) - 0.5f);
        const Eight across = odd ? s : c, up = odd ? c : s;
        store(u, r * (((quarter + 1) & 2) != 0 ? -across : across));
        store(v, r * ((quarter & 2) != 0 ? -up : up));
    }
}

extern "C" void normal(Generator *generator, float *numbers, int64_t length) {
    uint32_t words[kWords];
    std::copy(generator->words, generator->words + kWords, words);
    int64_t next = generator->next, left = generator->left - 1;
    const auto fill = [&](float *to, int64_t count) {
        for (int64_t i = 0, some; i < count; i += some, next += some, left -= some) {
            if (left == 0) twist(words), left = kWords, next = 0;
            some = std::min(left, count - i);
            for (int64_t k = 0; k < some; k++) to[i + k] = uniform(words[next + k]);
        }
        to_normal(to, count);
    };
    fill(numbers, length);
    if (length % (2 * kHalf)) fill(numbers + length - 2 * kHalf, 2 * kHalf);
    std::copy(words, words + kWords, generator->words);
    generator->next = next, generator->left = left + 1;
}
