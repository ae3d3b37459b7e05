// SPDX-License-Identifier: MIT
/// What the device tells the host about a wait that gave up. Hosts read it without a compiler of GPU code.
#pragma once

#include <stdint.h>

namespace mori::device {

/// What a wait that gave up was about, for the host to read. It starts as zeros.
struct WaitReport {
    uint64_t address;   ///< the word that did not change
    uint64_t expected;  ///< the value waited for
    uint64_t seen;      ///< the value that was there at last
    uint32_t rank;      ///< who waited
    uint32_t peer;      ///< for whom
    uint32_t count;     ///< waits that gave up; the record is the first one's
    uint32_t ready;     ///< 1 once the record is whole, written last
};

}  // namespace mori::device
