// SPDX-License-Identifier: MIT
/// One piece of work for a NIC, whichever family it is of. Only mlx5 has masked atomic operations and entries of nothing (nop).
#pragma once

#include <stdint.h>

namespace mori::nic {

enum class Kind : uint32_t {
    nop = 0,
    write = 1,               ///< bytes of local memory go to the remote address
    writeInline = 2,         ///< so do a few bytes (NIC::kMostInline) at the address ``local``, which may be written again at once
    writeValue = 3,          ///< so do the low 1 to 8 bytes of ``value``
    read = 4,                ///< bytes of the remote address come to local memory
    send = 5,                ///< bytes of local memory go to the peer's next receive
    fetchAdd = 6,            ///< 8 bytes; what was there comes to local memory, as a number of this machine
    compareSwap = 7,         ///< 8 bytes: ``value`` goes where ``compare`` is
    maskedFetchAdd = 8,      ///< 4 or 8 bytes: no carry goes past a bit that is set in ``valueMask``
    maskedCompareSwap = 9,   ///< 4 or 8 bytes: bits of ``compareMask`` are compared, bits of ``valueMask`` are swapped
};

/// Bits of Work::flags.
constexpr uint32_t kSilent = 1;     ///< no completion of its own: a later one tells of it
constexpr uint32_t kFenced = 2;     ///< it begins when the reads and atomic operations before it are done
constexpr uint32_t kSolicited = 4;  ///< the peer's completion raises an event
constexpr uint32_t kImmediate = 8;  ///< write and send: ``immediate`` comes with the peer's completion

constexpr uint64_t kMostBytes = 1u << 30;  ///< of one entry

/// Atomic operations leave what was there at ``local``. Hosts write lists of these for mori_nic_post.
struct Work {
    Kind kind;
    uint32_t flags;
    uint64_t remote;
    uint64_t local;
    uint64_t bytes;
    uint32_t rkey;
    uint32_t lkey;
    uint64_t value;
    uint64_t compare;
    uint64_t valueMask;
    uint64_t compareMask;
    uint32_t immediate;
    uint32_t reserved;
};

}  // namespace mori::nic
