// SPDX-License-Identifier: MIT
/// What the host tells the device about symmetric memory: it fills in the symbol mori_shmem_state of a module.
#pragma once

#include <stdint.h>

#include "mori/device/report.hpp"
#include "mori/nic/queue.hpp"

namespace mori::shmem {

/// How a PE's memory is reached from this GPU.
enum class Transport : uint32_t {
    none = 0,    ///< not at all
    p2p = 1,     ///< its heap is mapped here: loads and stores
    remote = 2,  ///< by mori_shmem_remote: a thread of the host does it, over a network
    nic = 3,     ///< by mori_shmem_remote: a queue of a NIC, to which the kernel posts
};

struct Peer {
    uint64_t heap;  ///< p2p: where the PE's heap begins here. remote: the queue of a mori::proxy. nic: a NicPeer
    Transport transport;
    uint32_t reserved;
};

/// A PE that a NIC's queue reaches.
struct NicPeer {
    uint64_t queue;      ///< a mori::nic::Queue
    uint64_t proxy;      ///< a mori::proxy::Queue, for what the NIC does not do
    nic::Memory mine;    ///< this PE's heap
    nic::Memory theirs;  ///< the other's
};

constexpr uint32_t kStateVersion = 1;

/// Words of 8 bytes that barriers use: zeros at first, at the same offset of every heap.
constexpr uint32_t kSyncWords = 128;

/// The host changes it between kernels only.
struct State {
    uint32_t version;  ///< kStateVersion; 0 until the host has filled it in
    int32_t myPe;
    int32_t nPes;
    uint32_t far;        ///< how many of them loads and stores do not reach
    uint64_t heap;       ///< where this PE's heap begins
    uint64_t heapBytes;  ///< as long as every PE's
    uint64_t sync;       ///< offset of the barriers' words in a heap
    uint64_t waitLimit;  ///< nanoseconds that a wait may last
    const Peer* peers;   ///< one for each PE, this one included
    device::WaitReport* report;  ///< mapped host memory
};

/// What an atomic operation or a signal does.
enum AtomicType : uint32_t {
    AMO_ACK = 1,
    AMO_INC,
    AMO_SET,
    AMO_ADD,
    AMO_AND,
    AMO_OR,
    AMO_XOR,
    AMO_SIGNAL,
    AMO_SIGNAL_SET,
    AMO_SIGNAL_ADD,
    AMO_END_OF_NONFETCH,
    AMO_FETCH,
    AMO_FETCH_INC,
    AMO_FETCH_ADD,
    AMO_FETCH_AND,
    AMO_FETCH_OR,
    AMO_FETCH_XOR,
    AMO_SWAP,
    AMO_COMPARE_SWAP,
};

/// What an operation does where it goes through mori_shmem_remote.
enum class RemoteKind : uint32_t { put = 1, get = 2, putSignal = 3, immediate = 4, atomic = 5, quiet = 6 };

/// One operation for a PE that loads and stores do not reach.
struct RemoteOp {
    RemoteKind kind;
    int32_t pe;   ///< -1: all PEs, for quiet
    int32_t qp;   ///< -1: all queues, for quiet
    uint32_t op;  ///< an AtomicType, for atomic and putSignal
    uint64_t local;
    uint64_t symmetric;  ///< as an address of this PE's heap
    uint64_t bytes;
    uint64_t value;   ///< immediate, operand or signal value
    uint64_t compare;
    uint64_t signal;  ///< the signal's symmetric address
};

}  // namespace mori::shmem
