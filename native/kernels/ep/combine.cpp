// SPDX-License-Identifier: MIT
// Combine: brings the rows of every token back to the token's rank and sums them. The steps are those of package ep: each
// rank puts its rows where the others read them, and each token's rank pulls them; or, where rows lie elsewhere, each rank sends them.
#include "mori/ep/pull.hpp"
#include "mori/ep/sent.hpp"

namespace mori::ep {
namespace {

using namespace mori::ep::internal;

struct Shared {
    Op op;
    Summing sums;
    SentBlocks blocks;
};

/// Who does what: all warps see to it that rows come where they are summed, and then sum; or, where rows are sent, one of each block sends while the
/// others sum. One is enough where a copy engine does the work, and too little elsewhere.
struct Roles {
    bool sent, apart;
    bool sends = true, sums = true;  // the calling warp
    Team sending = Team::all(), summing = Team::all();
    SharedPart shared = sharedPartOfWarp();

    MORI_DEVICE_INLINE Roles(const Op& op, const CombineArgs& args) : sent(isSent(op, args)), apart(sent && oneSends() && ownStay(args) && warpsPerBlock() > 1 && args.tokens >= gridWarps()) {
        if (!apart) {
            return;
        }
        constexpr uint32_t kLine = 128;
        const uint32_t most = kLine + kSendStages * kSendStage, third = sharedBytes() / 3 / kLine * kLine;
        const uint32_t own = most < third ? most : third;
        const uint32_t each = (sharedBytes() - own) / (warpsPerBlock() - 1) / kLine * kLine;
        sends = warpInBlock() == 0;
        sums = !sends;
        sending = Team::of(0, 1);
        summing = Team::of(1, warpsPerBlock());
        shared = sends ? SharedPart{0, own} : SharedPart{own + (warpInBlock() - 1) * each, each};
    }

private:
    MORI_DEVICE_INLINE static bool oneSends() {
#if defined(MORI_DEVICE_CPU)
        return true;  // for its tests
#else
        return sharedBytes() != 0;
#endif
    }
};

/// Rows lie in CombineIn, or are put there, for others to pull.
MORI_DEVICE_INLINE bool putOwn(const Op& op, const CombineArgs& args, uint64_t number, uint32_t& shared) {
    const bool moves = args.input != nullptr || args.weights != nullptr;
    // Nobody reads the rows of the last combine any more.
    if (moves && !blockAwaits(op, op.regions.pulled, flagValue(number - 1, 0), true, shared)) {
        return false;
    }
    bool last = false;
    if (!putRows(op, args, shared, last)) {
        return false;
    }
    // Rows that lie there already are told of by a warp that has none to find meanwhile, if tokens are few.
    if (moves ? last && threadInBlock() == 0 : warpInGrid() == gridWarps() - 1 && laneInWarp() == 0) {
        if (!moves) {
            fence<Scope::system>();
        }
        raise(op, op.regions.ready, flagValue(number, args.signature));
    }
    return true;
}

/// Rows are sent to the ranks of their tokens.
MORI_DEVICE_INLINE bool sendRows(const Op& op, const CombineArgs& args, uint64_t number, const Roles& roles, Shared& shared) {
    // Nobody reads the rows of the last combine any more.
    if (!blockAwaits(op, op.regions.pulled, flagValue(number - 1, 0), true, shared.sums.word) || !hasRows(op, args)) {
        return false;
    }
    if (roles.sends) {
        SentRows(op, args, flagValue(number, args.signature), shared.blocks, roles.sending, roles.shared).send();
    }
    return true;
}

#if defined(MORI_DEVICE_BULK_COPY)

/// Where a token's rows are that a warp brings.
struct Under {
    Found found{0, nullptr, nullptr};
    uint32_t at = 0, piece = 0;  // at: bytes that are on their way, or were summed
};

/// The same for whole tokens, whose rows come by bulk copies. terms is for kPullTokens.
template <Number type>
MORI_DEVICE_INLINE void pullTokens(const Op& op, const CombineArgs& args, const AtRanksOrSent& where, Terms* terms, Team team, PullStream& pull) {
    const RowShape shape{args.hidden, args.hidden, args.weighted != 0};
    const uint32_t rowBytes = args.hidden * numberBytes(type);
    const OwnTokens<AtRanksOrSent> tokens(op, args, where);
    static_assert(kPullTokens == 2, "the token being brought, and the one being summed");
    Under loading, summing, waiting;  // waiting: it is being brought behind the one being summed
    uint32_t next = team.warp;
    uint32_t opened = 0, closed = 0;
    loading.at = rowBytes;
    while (true) {
        while (!pull.isFull()) {
            if (loading.at < rowBytes) {
                const uint32_t left = rowBytes - loading.at;
                const uint32_t bytes = left < loading.piece ? left : loading.piece;
                pull.load(terms[(opened - 1) % kPullTokens], loading.found.rows, loading.at, bytes);
                loading.at += bytes;
                continue;
            }
            if (next >= args.tokens || opened - closed == kPullTokens) {
                break;
            }
            const Found found = tokens.find(next, rowBytes, terms[opened % kPullTokens]);
            if (where.haveCome()) {
                pull.look();
            }
            const Under one{found, 0, found.rows != 0 ? pull.pieceOf(found.rows) : 0};
            (opened == closed ? summing : waiting) = one;
            loading = one;
            loading.at = found.rows != 0 ? 0 : rowBytes;
            opened++;
            next += team.warps;
        }
        if (opened == closed) {
            return;
        }
        const Terms& here = terms[closed % kPullTokens];
        if (summing.found.rows == 0) {
            warpZero(summing.found.sum, rowBytes / sizeof(Chunk));
            summing.at = rowBytes;
        } else {
            const uint32_t left = rowBytes - summing.at;
            const uint32_t bytes = left < summing.piece ? left : summing.piece;
            sumPiece<type>(summing.found.sum, pull.await(), here, summing.found.rows, shape, summing.at, bytes);
            pull.release();
            summing.at += bytes;
        }
        if (summing.at == rowBytes) {
            sumWeights(op, args, summing.found.weights, here, summing.found.rows);
            summing = waiting;
            closed++;
        }
    }
}

/// Rows of a token, at most.
MORI_DEVICE_INLINE uint32_t mostRows(const Op& op) { return op.world < op.topk ? op.world : op.topk; }

/// Whether pullTokens can: rows of one type as they are, at aligned addresses, and tokens enough for all warps.
MORI_DEVICE_INLINE bool canPull(const Op& op, const CombineArgs& args, const Roles& roles) {
    const uint64_t rowBytes = uint64_t(args.hidden) * numberBytes(Number(args.type));
    uint64_t odd = rowBytes | op.regions.combineIn | op.regions.combineOut | (roles.sent ? uint64_t(args.input) : 0);
    for (uint32_t rank = 0; rank < op.world; rank++) {
        odd |= op.bases[rank];
    }
    return wayBytes(args) == numberBytes(Number(args.type)) && numberBytes(Number(args.type)) > 1 && odd % 16 == 0 && rowBytes >> 31 == 0 &&
           args.tokens >= gridWarps() && PullStream::isRoom(roles.shared, mostRows(op));
}

#endif

/// A warp's share of the sums, behind ready(); false if it is.
template <class Ready>
MORI_DEVICE_INLINE bool sumAll(const Op& op, const CombineArgs& args, uint64_t value, Shared& shared, const Roles& roles, Ready ready) {
    const AtRanksOrSent where(op, args, value, shared.blocks, roles.sent);
    const Team team = roles.summing;
#if defined(MORI_DEVICE_BULK_COPY)
    if (canPull(op, args, roles)) {
        if (!ready()) {
            return false;
        }
        PullStream pull(roles.shared, mostRows(op));
        Terms* const terms = shared.sums.terms + warpInBlock() * kPullTokens;
        if (args.type == uint32_t(Number::bfloat16)) {
            pullTokens<Number::bfloat16>(op, args, where, terms, team, pull);
        } else {
            pullTokens<Number::float32>(op, args, where, terms, team, pull);
        }
        return true;
    }
#endif
    return sumAsTyped(op, args, OwnTokens<AtRanksOrSent>(op, args, where), shared.sums.terms[warpInBlock()], team, ready);
}

/// All blocks have summed: the last one tells everybody.
MORI_DEVICE_INLINE void end(const Op& op, const CombineArgs& args, uint64_t number, uint32_t& shared) {
    if (!isLastBlock<Scope::device>(op, 1, shared) || warpInBlock() != 0) {
        return;
    }
    const uint64_t pulled = flagValue(number, 0);
    if (laneInWarp() == 0) {
        raise(op, op.regions.pulled, pulled);
        op.progress->combines = number;
        if (args.clearReceived != 0) {
            *op.received = 0;
        }
    }
    if (args.input == nullptr) {  // the caller may fill CombineIn anew as soon as this ends
        awaitFlags(op, op.regions.pulled, pulled, kEveryone, true);
    }
}

MORI_DEVICE_INLINE void combine(const CombineArgs& args, Shared& shared) {
    if (!bring(args.op, shared.op, shared.sums.word)) {
        return;
    }
    const Op& op = shared.op;
    const uint64_t number = op.progress->combines + 1;
    const uint64_t value = flagValue(number, args.signature);
    const Roles roles(op, args);
    uint32_t& word = shared.sums.word;
    if (roles.sent) {
        shared.blocks.read(op);
    }
    if ((args.phases & kSend) != 0 && !(roles.sent ? sendRows(op, args, number, roles, shared) : putOwn(op, args, number, word))) {
        return;
    }
    if ((args.phases & kRecv) == 0) {
        return;
    }
    auto ready = [&] {
        return roles.apart ? awaitFlags(op, op.regions.ready, value, kEveryone, false) : blockAwaits(op, op.regions.ready, value, false, word);
    };
    if (roles.sums && !sumAll(op, args, value, shared, roles, ready)) {
        if (!roles.apart) {
            return;
        }
        giveUp(op);
    }
    end(op, args, number, word);
}

}  // namespace
}  // namespace mori::ep

/// Blocks of up to kMostThreads.
extern "C" MORI_DEVICE_KERNEL(mori::ep::kMostThreads) void mori_ep_combine(const mori::ep::CombineArgs args) {
    MORI_DEVICE_SHARED(mori::ep::Shared, shared);
    mori::ep::combine(args, shared);
}
