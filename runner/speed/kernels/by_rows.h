// Rows shared out to threads: work(first, last) for each share.

#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

template <typename Rows>
static void by_rows(int64_t rows, int64_t threads, Rows work) {
    threads = std::max<int64_t>(1, std::min(threads, rows));
    std::vector<std::thread> others;
    for (int64_t n = 1; n < threads; n++) others.emplace_back(work, n * rows / threads, (n + 1) * rows / threads);
    work(0, rows / threads);
    for (auto &other : others) other.join();
}
