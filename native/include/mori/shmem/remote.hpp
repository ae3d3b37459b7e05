// SPDX-License-Identifier: MIT
/// Operations for PEs that loads and stores do not reach: the host does them, by the queue of a proxy.
#pragma once

#include "mori/proxy/device.hpp"
#include "mori/shmem/peer.hpp"

namespace mori::shmem::internal {

/// An op as a proxy names it, and with which operand. It has no name for those that change nothing and return nothing.
struct ProxyAtomic {
    proxy::Atomic change;
    uint64_t value;
    bool known;
};

MORI_DEVICE_INLINE ProxyAtomic proxyAtomic(const RemoteOp& op) {
    switch (op.op) {
        case AMO_INC:
        case AMO_FETCH_INC:
            return {proxy::Atomic::add, 1, true};
        case AMO_ADD:
        case AMO_SIGNAL_ADD:
        case AMO_FETCH_ADD:
            return {proxy::Atomic::add, op.value, true};
        case AMO_AND:
        case AMO_FETCH_AND:
            return {proxy::Atomic::bitAnd, op.value, true};
        case AMO_OR:
        case AMO_FETCH_OR:
            return {proxy::Atomic::bitOr, op.value, true};
        case AMO_XOR:
        case AMO_FETCH_XOR:
            return {proxy::Atomic::bitXor, op.value, true};
        case AMO_SET:
        case AMO_SIGNAL:
        case AMO_SIGNAL_SET:
        case AMO_SWAP:
            return {proxy::Atomic::set, op.value, true};
        case AMO_COMPARE_SWAP:
            return {proxy::Atomic::compareSwap, op.value, true};
        case AMO_FETCH:
            return {proxy::Atomic::read, 0, true};
        default:
            return {proxy::Atomic::read, 0, false};
    }
}

/// What the host knows of a failure is in the queue; the report names the PE and the status.
MORI_DEVICE_INLINE void heed(const RemoteOp& op, uint32_t status) {
    if (status != 0) {
        fail(reinterpret_cast<const void*>(op.symmetric), 0, status, op.pe);
    }
}

/// What was posted, or that it could not be.
MORI_DEVICE_INLINE void posted(const proxy::Queue& queue, const RemoteOp& op, uint64_t ticket) {
    if (ticket == 0) {
        heed(op, proxy::wait<proxy::Group::thread>(queue, ticket, uint32_t(op.pe)));
    }
}

MORI_DEVICE_INLINE uint64_t remotePut(const proxy::Queue& queue, const RemoteOp& op, uint64_t heap) {
    using proxy::Group;
    const uint32_t pe = uint32_t(op.pe);
    const uint64_t to = op.symmetric - heap;
    switch (op.kind) {
        case RemoteKind::put:
            return proxy::put<Group::thread>(queue, pe, to, op.local, op.bytes);
        case RemoteKind::get:
            return proxy::get<Group::thread>(queue, pe, to, op.local, op.bytes);
        case RemoteKind::immediate:
            return proxy::putValue<Group::thread>(queue, pe, to, op.value, uint32_t(op.bytes));
        default: {
            const ProxyAtomic does = proxyAtomic(op);
            const proxy::Signal signal{0, op.signal - heap, does.change, does.value};
            // Nothing is at no place: the host looks where the bytes are, however few.
            const uint64_t local = op.bytes != 0 ? op.local : heap;
            return proxy::putSignal<Group::thread>(queue, pe, op.bytes != 0 ? to : 0, local, op.bytes, signal);
        }
    }
}

/// Changes a word of 4 or 8 bytes; fetching, it returns what was there.
MORI_DEVICE_INLINE uint64_t remoteWord(const proxy::Queue& queue, const RemoteOp& op, const ProxyAtomic& does, uint64_t at,
                                       uint32_t word) {
    const uint32_t pe = uint32_t(op.pe);
    if (op.op < AMO_END_OF_NONFETCH) {
        posted(queue, op, proxy::atomic<proxy::Group::thread>(queue, pe, at, does.change, does.value, word));
        return 0;
    }
    uint64_t old = 0;
    heed(op, proxy::fetch(queue, pe, at, does.change, does.value, op.compare, &old, word));
    return old;
}

/// Changes a word of 1 or 2 bytes by exchanging the 4 around it.
MORI_DEVICE_INLINE uint64_t remotePart(const proxy::Queue& queue, const RemoteOp& op, const ProxyAtomic& does, uint64_t at) {
    const uint32_t pe = uint32_t(op.pe);
    const uint64_t around = at / 4 * 4;
    const uint32_t shift = uint32_t(at % 4) * 8;
    const uint32_t mask = (op.bytes == 1 ? 0xffu : 0xffffu) << shift;
    const uint32_t value = uint32_t(does.value) << shift & mask;
    uint64_t seen = 0;
    uint32_t status = proxy::fetch(queue, pe, around, proxy::Atomic::read, 0, 0, &seen, 4);
    while (status == 0) {
        const uint32_t before = uint32_t(seen);
        uint32_t part = before & mask;
        switch (does.change) {
            case proxy::Atomic::add:
                part = (part + value) & mask;
                break;
            case proxy::Atomic::bitAnd:
                part &= value;
                break;
            case proxy::Atomic::bitOr:
                part |= value;
                break;
            case proxy::Atomic::bitXor:
                part ^= value;
                break;
            case proxy::Atomic::set:
                part = value;
                break;
            case proxy::Atomic::compareSwap:
                part = part == (uint32_t(op.compare) << shift & mask) ? value : part;
                break;
            default:
                break;
        }
        const uint32_t after = (before & ~mask) | part;
        if (after == before) {
            return (before & mask) >> shift;
        }
        status = proxy::fetch(queue, pe, around, proxy::Atomic::compareSwap, after, before, &seen, 4);
        if (status == 0 && uint32_t(seen) == before) {
            return (before & mask) >> shift;
        }
    }
    heed(op, status);
    return 0;
}

/// A set is a write, behind all puts to the PE before it, as a signal is.
MORI_DEVICE_INLINE uint64_t remoteAtomic(const proxy::Queue& queue, const RemoteOp& op, uint64_t heap) {
    using proxy::Group;
    const ProxyAtomic does = proxyAtomic(op);
    const uint64_t at = op.symmetric - heap;
    const uint32_t pe = uint32_t(op.pe);
    if (!does.known) {
        return 0;
    }
    if (op.op < AMO_END_OF_NONFETCH && does.change == proxy::Atomic::set) {
        if (op.bytes == 8) {
            const proxy::Signal signal{0, at, does.change, op.value};
            posted(queue, op, proxy::putSignal<Group::thread>(queue, pe, 0, heap, 0, signal));
            return 0;
        }
        posted(queue, op, proxy::fence<Group::thread>(queue, pe));
        posted(queue, op, proxy::putValue<Group::thread>(queue, pe, at, op.value, uint32_t(op.bytes)));
        return 0;
    }
    return op.bytes < 4 ? remotePart(queue, op, does, at) : remoteWord(queue, op, does, at, uint32_t(op.bytes));
}

/// mori_shmem_remote by the PE's queue. qp makes no difference: a PE has one.
MORI_DEVICE_INLINE uint64_t byProxy(const RemoteOp& op) {
    const State own = state();
    const proxy::Queue& queue = *reinterpret_cast<const proxy::Queue*>(device::loadConstant(&own.peers[op.pe].heap));
    if (op.kind == RemoteKind::quiet) {
        heed(op, proxy::quiet<proxy::Group::thread>(queue, uint32_t(op.pe)));
        return 0;
    }
    if (op.kind == RemoteKind::atomic) {
        return remoteAtomic(queue, op, own.heap);
    }
    posted(queue, op, remotePut(queue, op, own.heap));
    return 0;
}

}  // namespace mori::shmem::internal

#if defined(MORI_DEVICE_CPU)
extern "C" __attribute__((weak, noinline)) uint64_t mori_shmem_remote(const mori::shmem::RemoteOp* op) {
#else
extern "C" __attribute__((device, weak, noinline)) uint64_t mori_shmem_remote(const mori::shmem::RemoteOp* op) {
#endif
    return mori::shmem::internal::byProxy(*op);
}
