// SPDX-License-Identifier: MIT
// Runs the block copy's own source on the CPU, threads for lanes, over lists of segments of any size and alignment, and
// holds every byte of the target against a model. Built with sanitizers by tests/python/kernels.
#include "mori/io/copy_blocks.hpp"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "mori/device/poll.hpp"
#include "threads.hpp"

extern "C" void mori_io_copy_blocks(mori::io::CopyBlocksArgs args);

namespace {

using mori::io::CopyBlocksArgs;
using mori::io::Segment;

void require(bool ok, const char* what) {
    if (!ok) {
        fprintf(stderr, "failed: %s\n", what);
        exit(1);
    }
}

struct Grid {
    uint32_t blocks, threads;
};

/// A list over memory of its own: sources of random bytes, targets that lie in one buffer with gaps between them.
class Case {
public:
    Case(std::mt19937& random, const std::vector<uint64_t>& sizes, uint32_t alignment) {
        uint64_t from = 0;
        uint64_t to = 0;
        uint64_t before = 0;
        for (uint64_t bytes : sizes) {
            from += gap(random, alignment);
            to += gap(random, alignment);
            list_.push_back({to, from, bytes, before});
            from += bytes;
            to += bytes;
            before += bytes;
        }
        total_ = before;
        // The end of the heap block is the end of the last segment: the address sanitizer sees a byte too much.
        source_ = std::make_unique<unsigned char[]>(from);
        target_ = std::make_unique<unsigned char[]>(to);
        model_.assign(to, kUntouched);
        std::fill_n(target_.get(), to, kUntouched);
        for (uint64_t i = 0; i < from; i++) {
            source_[i] = static_cast<unsigned char>(random());
        }
        for (Segment& segment : list_) {
            std::copy_n(source_.get() + segment.source, segment.bytes, model_.begin() + int64_t(segment.destination));
            segment.destination += reinterpret_cast<uint64_t>(target_.get());
            segment.source += reinterpret_cast<uint64_t>(source_.get());
        }
        // The order of the list is not the order of the memory.
        std::shuffle(list_.begin(), list_.end(), random);
        before = 0;
        for (Segment& segment : list_) {
            segment.before = before;
            before += segment.bytes;
        }
        aligned_ = std::make_unique<List[]>(list_.size() + 1);
        for (size_t i = 0; i < list_.size(); i++) {
            aligned_[i].segment = list_[i];
        }
    }

    void run(Grid grid) {
        run(grid, {&aligned_[0].segment, list_.size(), total_, nullptr, nullptr, 42, {}, 0, 0, 0});
        if (list_.size() == 1) {  // which may go along with the arguments
            run(grid, {nullptr, 1, total_, nullptr, nullptr, 42, list_[0], 0, 0, 0});
        }
        if (sameSize() && total_ > 0) {  // then offsets say all
            const uint64_t to = reinterpret_cast<uint64_t>(target_.get());
            const uint64_t from = reinterpret_cast<uint64_t>(source_.get());
            std::vector<uint64_t> rows;
            for (const Segment& segment : list_) {
                rows.push_back(segment.destination - to);
            }
            for (const Segment& segment : list_) {
                rows.push_back(segment.source - from);
            }
            run(grid, {rows.data(), list_.size(), total_, nullptr, nullptr, 42, {}, list_[0].bytes, to, from});
        }
    }

private:
    void run(Grid grid, CopyBlocksArgs args) {
        uint32_t arrivals = 0;
        uint64_t completion = 0;
        args.arrivals = &arrivals;
        args.completion = &completion;
        // The host looks as soon as it is told, while threads of the grid may still be there.
        std::thread host([&] {
            const bool told = mori::device::pollUntil(
                60'000'000'000, [&] { return __atomic_load_n(&completion, __ATOMIC_ACQUIRE) == 42; });
            require(told, "the last block tells that all is done");
            require(std::equal(model_.begin(), model_.end(), target_.get()), "every byte is where it belongs");
        });
        launch(grid.blocks, grid.threads, [&] { mori_io_copy_blocks(args); });
        host.join();
        require(arrivals == 0, "the counter of blocks is ready for the next launch");
        std::fill_n(target_.get(), model_.size(), kUntouched);
    }

    bool sameSize() const {
        return std::all_of(list_.begin(), list_.end(), [&](const Segment& s) { return s.bytes == list_[0].bytes; });
    }

    struct alignas(16) List {
        Segment segment;
    };

    static constexpr unsigned char kUntouched = 0xa5;

    static uint64_t gap(std::mt19937& random, uint32_t alignment) { return random() % 4 * alignment; }

    std::vector<Segment> list_;
    std::unique_ptr<List[]> aligned_;
    std::unique_ptr<unsigned char[]> source_, target_;
    std::vector<unsigned char> model_;
    uint64_t total_ = 0;
};

std::vector<uint64_t> sizes(std::mt19937& random, size_t count, uint64_t most) {
    std::vector<uint64_t> all(count);
    for (uint64_t& size : all) {
        size = random() % (most + 1);
    }
    return all;
}

void copies(std::mt19937& random) {
    const Grid grids[] = {{1, 4}, {1, 12}, {3, 8}, {5, 4}};
    for (uint32_t alignment : {1, 2, 4, 8, 16, 64}) {
        for (const Grid& grid : grids) {
            Case(random, sizes(random, 1 + random() % 40, 700), alignment).run(grid);
            Case(random, sizes(random, 1 + random() % 9, 9000), alignment).run(grid);
        }
    }
    for (const Grid& grid : grids) {
        Case(random, {}, 1).run(grid);
        Case(random, {0, 0, 0}, 1).run(grid);
        Case(random, {0, 1, 0, 0, 2, 0}, 1).run(grid);
        Case(random, {100003}, 1).run(grid);                                // cut
        Case(random, std::vector<uint64_t>(150, 3), 1).run(grid);           // packed
        Case(random, std::vector<uint64_t>(33, 4096), 16).run(grid);        // a cache's blocks
        Case(random, std::vector<uint64_t>(1 + random() % 70, 1 + random() % 900), 4).run(grid);
    }
}

/// Many launches of one stream use one counter and one word, as a host does.
void launchesInTurn(std::mt19937& random) {
    for (int i = 0; i < 20; i++) {
        Case(random, sizes(random, 5, 300), 16).run({2, 8});
    }
}

void atomics() {
    using namespace mori::device;
    uint64_t sum = 0;
    uint32_t winner = 0;
    uint64_t payload = 0;
    uint64_t flag = 0;
    uint64_t seen = 0;
    launch(3, 8, [&] {
        atomicAdd<Scope::device, Order::relaxed>(&sum, uint64_t(threadInBlock()));
        atomicCompareSwap<Scope::device, Order::acqRel>(&winner, 0u, blockInGrid() + 1);
        if (blockInGrid() == 0 && threadInBlock() == 0) {
            payload = 7;
            atomicStore<Scope::system, Order::release>(&flag, uint64_t(1));
        }
        if (blockInGrid() == 1 && threadInBlock() == 0) {
            const bool set = pollUntil(
                20'000'000'000, [&] { return atomicLoad<Scope::system, Order::acquire>(&flag) == 1; });
            seen = set ? payload : 0;
        }
    });
    require(sum == 3 * 28, "all additions are there");
    require(winner >= 1 && winner <= 3, "one exchange won");
    require(seen == 7, "who sees the flag sees what was written before it");
}

void waitsThatGiveUp() {
    using namespace mori::device;
    uint64_t never = 5;
    WaitReport report{};
    launch(1, 8, [&] {
        if (!pollUntil(1'000'000, [&] { return atomicLoad<Scope::system, Order::relaxed>(&never) == 6; })) {
            reportWait(&report, &never, 6, 5, 1, threadInBlock());
        }
    });
    require(report.count == 8 && report.ready == 1, "all gave up, one reported");
    require(report.address == reinterpret_cast<uint64_t>(&never) && report.expected == 6 && report.seen == 5 &&
                report.rank == 1 && report.peer < 8,
            "the report tells what was waited for");
}

}  // namespace

int main() {
    std::mt19937 random(6);
    copies(random);
    launchesInTurn(random);
    atomics();
    waitsThatGiveUp();
    puts("all ran");
    return 0;
}
