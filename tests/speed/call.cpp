// Calls KERNEL with what stdin holds, and writes its arrays back to stdout: for a kernel built for another processor.
//
// Each argument is a kind ('p' an array, 'i' a whole number, 'd' a double), eight bytes (an array's length in bytes, -1
// for none; else the number), and an array's bytes. Works where whole numbers, addresses and doubles are passed in
// registers of their own, as they are on 64-bit ARM.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

extern "C" void KERNEL(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                       int64_t, int64_t, double);

int main() {
    std::vector<std::vector<char>> arrays;
    arrays.reserve(16);
    int64_t of[12] = {}, given = 0;
    double number = 0;
    for (int kind; (kind = std::getchar()) != EOF;) {
        char bytes[8];
        if (std::fread(bytes, 1, 8, stdin) != 8) return 1;
        int64_t value;
        std::memcpy(&value, bytes, 8);
        if (kind == 'd') {
            std::memcpy(&number, bytes, 8);
            continue;
        }
        if (kind == 'p' && value >= 0) {
            arrays.emplace_back(value);
            if (std::fread(arrays.back().data(), 1, value, stdin) != static_cast<size_t>(value)) return 1;
            value = reinterpret_cast<int64_t>(arrays.back().data());
        } else if (kind == 'p') {
            value = 0;
        }
        of[given++] = value;
    }
    KERNEL(of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7], of[8], of[9], of[10], of[11], number);
    for (const auto &array : arrays) std::fwrite(array.data(), 1, array.size(), stdout);
}
