// SPDX-License-Identifier: MIT
/// Operations for PEs that loads and stores do not reach: the host does them, by the queue of a proxy.
#pragma once

#include "mori/device/copy.hpp"
#include "mori/proxy/device.hpp"
#include "mori/shmem/state.hpp"

namespace mori::shmem {

/// What came of an operation: the old value, for an atomic that has one; and 0 or why it was not done or posted: a status of a proxy, or kOfNic and
/// one of a NIC. What fails after it was posted is told to later operations and waits.
struct Outcome {
    uint64_t old;
    uint64_t status;
};

namespace internal {

MORI_DEVICE_INLINE Transport transportTo(const State& own, int pe) {
    return device::loadConstant(&own.peers[pe].transport);
}

/// Whether carry() comes there.
MORI_DEVICE_INLINE bool byNetwork(Transport transport) {
    return transport == Transport::remote || transport == Transport::nic;
}

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

// What is long a module has once: next to the way to the host a call costs nothing.

/// What is posted of an operation.
struct Posting {
    proxy::Kind kind;
    proxy::Detail detail;
    proxy::internal::Terms terms;
};

MORI_DEVICE_APART uint64_t post(const proxy::Queue& queue, const RemoteOp& op, const Posting& what) {
    const uint32_t pe = uint32_t(op.pe);
    const proxy::Detail& d = what.detail;
    uint64_t ticket = 0;
    if (what.kind == proxy::Kind::put || what.kind == proxy::Kind::get) {
        ticket = proxy::internal::move(queue, what.kind, pe, d.remote, d.local, d.bytes, 0);
    } else {
        ticket = proxy::internal::post(queue, what.kind, pe, d, what.terms);
    }
    return ticket != 0 ? 0 : proxy::kStopped;
}

MORI_DEVICE_APART Outcome fetch(const proxy::Queue& queue, uint32_t pe, uint64_t at, proxy::Atomic change, uint64_t value,
                               uint64_t compare, uint32_t word) {
    Outcome got{};
    got.status = proxy::fetch(queue, pe, at, change, value, compare, &got.old, word);
    return got;
}

/// A put, get, immediate or put with a signal.
MORI_DEVICE_INLINE Posting postingOf(const RemoteOp& op, uint64_t heap) {
    Posting what{};
    what.detail = {op.local, op.symmetric - heap, op.bytes, op.value, 0, 0};
    switch (op.kind) {
        case RemoteKind::put:
            what.kind = proxy::Kind::put;
            break;
        case RemoteKind::get:
            what.kind = proxy::Kind::get;
            break;
        case RemoteKind::immediate:
            what.kind = proxy::Kind::immediate;
            break;
        default:
            what.kind = proxy::Kind::putSignal;
            what.terms.atomic = proxyAtomic(op).change;
            what.detail.value = proxyAtomic(op).value;
            what.detail.signal = op.signal - heap;
            if (op.bytes == 0) {  // the host looks where the bytes are, however few
                what.detail.local = heap;
                what.detail.remote = 0;
            }
    }
    return what;
}

/// Changes a word of 1 or 2 bytes by exchanging the 4 around it.
MORI_DEVICE_APART Outcome remotePart(const proxy::Queue& queue, const RemoteOp& op, const ProxyAtomic& does, uint64_t at) {
    const uint32_t pe = uint32_t(op.pe);
    const uint64_t around = at / 4 * 4;
    const uint32_t shift = uint32_t(at % 4) * 8;
    const uint32_t mask = (op.bytes == 1 ? 0xffu : 0xffffu) << shift;
    const uint32_t value = uint32_t(does.value) << shift & mask;
    Outcome seen = fetch(queue, pe, around, proxy::Atomic::read, 0, 0, 4);
    while (seen.status == 0) {
        const uint32_t before = uint32_t(seen.old);
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
            return {(before & mask) >> shift, 0};
        }
        seen = fetch(queue, pe, around, proxy::Atomic::compareSwap, after, before, 4);
        if (seen.status == 0 && uint32_t(seen.old) == before) {
            return {(before & mask) >> shift, 0};
        }
    }
    return {0, seen.status};
}

/// A set is a write behind all puts to the PE before it, as a signal is.
MORI_DEVICE_INLINE uint64_t remoteSet(const proxy::Queue& queue, const RemoteOp& op, uint64_t heap) {
    Posting what{};
    what.detail = {heap, op.symmetric - heap, op.bytes, op.value, 0, 0};
    if (op.bytes == 8) {
        what.kind = proxy::Kind::putSignal;
        what.terms.atomic = proxy::Atomic::set;
        what.detail = {heap, 0, 0, op.value, 0, op.symmetric - heap};
    } else {
        what.kind = proxy::Kind::fence;
        if (const uint64_t status = post(queue, op, what)) {
            return status;
        }
        what.kind = proxy::Kind::immediate;
    }
    return post(queue, op, what);
}

MORI_DEVICE_APART Outcome remoteAtomic(const proxy::Queue& queue, const RemoteOp& op, uint64_t heap) {
    const ProxyAtomic does = proxyAtomic(op);
    const uint64_t at = op.symmetric - heap;
    if (!does.known) {
        return {0, 0};
    }
    if (op.op < AMO_END_OF_NONFETCH && does.change == proxy::Atomic::set) {
        return {0, remoteSet(queue, op, heap)};
    }
    if (op.bytes < 4) {
        return remotePart(queue, op, does, at);
    }
    if (op.op < AMO_END_OF_NONFETCH) {
        Posting what{};
        what.kind = proxy::Kind::atomic;
        what.detail = {0, at, op.bytes, does.value, 0, 0};
        what.terms.atomic = does.change;
        what.terms.word = uint32_t(op.bytes);
        return {0, post(queue, op, what)};
    }
    return fetch(queue, uint32_t(op.pe), at, does.change, does.value, op.compare, uint32_t(op.bytes));
}

/// By a PE's queue. qp makes no difference: a PE has one.
MORI_DEVICE_APART Outcome byProxy(const RemoteOp& op, const proxy::Queue& queue, uint64_t heap) {
    if (op.kind == RemoteKind::quiet) {
        return {0, proxy::quiet<proxy::Group::thread>(queue, uint32_t(op.pe))};
    }
    if (op.kind == RemoteKind::atomic) {
        return remoteAtomic(queue, op, heap);
    }
    return {0, post(queue, op, postingOf(op, heap))};
}

}  // namespace internal
}  // namespace mori::shmem
