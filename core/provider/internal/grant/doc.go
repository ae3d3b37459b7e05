// SPDX-License-Identifier: MIT

// Package grant decides who may reach which region, and until when. It is for providers whose
// initiators reach the memory of a target directly, without asking for each access.
//
// The initiator shows the key of a region once. The target answers with a grant, and with the
// provider's own description of where the region is. MR.Close at the target revokes the grants of
// the region and returns once they came back: first the initiator's pending accesses end. A peer
// that does not return a grant in time is disconnected (AwaitReturns).
//
//	initiator (Holder)              target (Granter)
//	Find(key)      ── request ────▶ OnRequest: checks the key, describes the region
//	OnGrant        ◀──── grant ────
//	OnRefuse       ◀──── refuse ───
//	OnRevoke       ◀──── revoke ─── Revoke, in MR.Close
//	Use is empty   ── return ─────▶ OnReturn
//
// A target may also grant without a request what its peer is to reach for it: a share of its device
// memory (Granter.Share, Holder.Share).
package grant
