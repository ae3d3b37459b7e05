// SPDX-License-Identifier: MIT
// Combine where hosts sum: the rank that forwarded a token to its host in the last dispatch sums the rows that this host has of it, and sends one row to
// the token's rank, which adds the rows of its own host to those of others. Rows are float32 or bfloat16 as they are: more roundings would cost others too
// much. package ep launches it on all ranks alike.
#include "mori/ep/forward.hpp"

namespace mori::ep {
namespace {

using namespace mori::ep::internal;

MORI_DEVICE_INLINE bool send(const Op& op, const Hosts& hosts, const CombineArgs& args, uint64_t number, uint32_t& shared) {
    // Nobody reads the rows and sums of the last combine any more, here or where they were sent.
    bool last = false;
    if (!blockAwaitsRanks(op, hosts, op.regions.pulled, flagValue(number - 1, 0), kEveryone, true, shared) || !putRows(op, args, shared, last)) {
        return false;
    }
    if (last && warpInBlock() == 0) {
        raiseAt(op, hosts, op.regions.ready, flagValue(number, args.signature), hosts.near);
    }
    return true;
}

/// Tokens of other hosts while there are any, and then this rank's.
class AllTokens {
public:
    MORI_DEVICE_INLINE AllTokens(const Forwarded& forwarded, const OwnTokens<AtRanksOrHosts>& own) : forwarded_(forwarded), own_(own) {}

    MORI_DEVICE_INLINE uint32_t count() const { return forwarded_.any() ? forwarded_.count() : own_.count(); }

    MORI_DEVICE_INLINE Found find(uint32_t token, uint64_t bytes, Terms& terms) const {
        return forwarded_.any() ? forwarded_.find(token, terms) : own_.find(token, bytes, terms);
    }

private:
    const Forwarded& forwarded_;
    const OwnTokens<AtRanksOrHosts>& own_;
};

/// All blocks sum for other hosts, and send a chunk of that while they sum the next one; and then for this rank. The sums are much code, which is there once.
template <Number type>
MORI_DEVICE_INLINE void sumAll(const Op& op, const Hosts& hosts, const CombineArgs& args, uint64_t value, Summing& shared) {
    Forwarded forwarded(op, hosts, args);
    const AtRanksOrHosts where(op, hosts, args, value);
    const OwnTokens<AtRanksOrHosts> own(op, args, where);
    while (true) {
        sumTokens<type, type, false>(op, args, AllTokens(forwarded, own), shared.terms[warpInBlock()], Team::all(), [] { return true; });
        if (!forwarded.any()) {
            return;
        }
        if (isLastOfChunk(hosts, forwarded.chunk(), shared.word) && warpInBlock() == 0) {
            forwarded.send(value);
        }
        forwarded.advance();
    }
}

MORI_DEVICE_INLINE void receive(const Op& op, const Hosts& hosts, const CombineArgs& args, uint64_t number, Summing& shared) {
    const uint64_t value = flagValue(number, args.signature);
    if (!blockAwaitsRanks(op, hosts, op.regions.ready, value, hosts.near, false, shared.word)) {
        return;
    }
    if (args.type == uint32_t(Number::bfloat16)) {
        sumAll<Number::bfloat16>(op, hosts, args, value, shared);
    } else {
        sumAll<Number::float32>(op, hosts, args, value, shared);
    }
    endCombine(op, hosts, args, number, shared.word);
}

}  // namespace
}  // namespace mori::ep

/// Blocks of up to kMostThreads.
extern "C" MORI_DEVICE_KERNEL(mori::ep::kMostThreads) void mori_ep_combine_forward(const mori::ep::HostsCombineArgs args) {
    using namespace mori::ep;
    MORI_DEVICE_SHARED(Summing, shared);
    combineBetweenHosts(args, shared, send, receive);
}
