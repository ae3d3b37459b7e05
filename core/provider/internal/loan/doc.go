// SPDX-License-Identifier: MIT

// Package loan is the protocol by which one end of a connection lets the other reach a region directly, and takes that back: for providers whose
// initiators touch the target's memory without asking each time.
//
// The initiator shows a region's key once and gets a loan, with which the provider's own description of the place comes. The target's
// MR.Close calls the loans of its region in, and returns when they have been given back: the initiator's accesses under way end
// first. Who does not give back is disconnected (local.AwaitReturns).
//
//	initiator (Borrower)              target (Lender)
//	Find(key)      ── ask ──────────▶ OnAsk: checks the key, describes the place
//	OnLend         ◀───── lend ──────
//	OnRefuse       ◀───── refuse ────
//	OnRevoke       ◀───── revoke ──── Revoke, in MR.Close
//	Use is empty   ── return ───────▶ OnReturn
//
// A target may also lend unasked what it wants its peer to reach for it: a share of its device memory (Lender.Share, Borrower.Share).
package loan
