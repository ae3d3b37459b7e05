// SPDX-License-Identifier: MIT

// Package grant decides which peer may access which region, and until when. It is for providers
// whose initiators access the memory of a target directly, without asking for each access.
//
// The initiator shows the key of a region once. The target answers with a grant and the provider's
// own description of where the region is. MR.Close at the target revokes the region's grants and
// returns once all of them were returned. The initiator returns a grant after its pending accesses
// have ended. A peer that does not return a grant in time is disconnected (AwaitReturns).
//
//	initiator (Holder)              target (Granter)
//	Find(key)      ── request ────▶ OnRequest: checks the key, describes the region
//	OnGrant        ◀──── grant ────
//	OnRefuse       ◀──── refuse ───
//	OnRevoke       ◀──── revoke ─── Revoke, in MR.Close
//	Use is empty   ── return ─────▶ OnReturn
//
// A target may also grant its peer access without a request: a share of its device memory
// (Granter.Share, Holder.Share).
package grant
