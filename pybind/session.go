// SPDX-License-Identifier: MIT

package pybind

// #include <stdlib.h>
// #include "fast.h"
import "C"

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"mori/io"
	"mori/pybind/handle"
)

// A session is the value of a session handle. It is a real session, or, if no backend can serve the
// pair, the status for every transfer.
type session struct {
	*io.Session
	refusal *io.Status
}

var sessions = handle.Table[*session]{What: "session"}

// EngineCreateSession prepares transfers between two regions, given by packed descriptors in hex.
// It returns 0 if no backend can serve the pair.
func EngineCreateSession(engine uint64, local string, remote string) (id uint64, err error) {
	defer guard(&err)
	e, l, r, err := engineAndPair(engine, local, remote)
	if err != nil {
		return 0, err
	}
	s, err := e.CreateSession(l, r)
	if s == nil || err != nil {
		return 0, err
	}
	return sessions.Add(&session{Session: s}), nil
}

// EngineSessionFor is EngineCreateSession for transfers without a session of their own. It never
// returns 0: if no backend can serve the pair, transfers on the handle fail with ERR_BAD_STATE.
func EngineSessionFor(engine uint64, local string, remote string) (id uint64, err error) {
	defer guard(&err)
	e, l, r, err := engineAndPair(engine, local, remote)
	if err != nil {
		return 0, err
	}
	s, refusal, err := e.SessionFor(l, r)
	if err != nil {
		return 0, err
	}
	return sessions.Add(&session{s, refusal}), nil
}

func engineAndPair(engine uint64, local, remote string) (e *io.Engine, l, r io.MemoryDesc, err error) {
	if e, err = engines.Get(engine); err != nil {
		return
	}
	if l, err = memoryDescFromHex(local); err != nil {
		return
	}
	r, err = memoryDescFromHex(remote)
	return
}

// SessionAlive reports whether transfers can still succeed.
func SessionAlive(id uint64) (alive bool, err error) {
	defer guard(&err)
	s, err := sessions.Get(id)
	if err != nil {
		return false, err
	}
	return s.Session != nil && s.Alive(), nil
}

// SessionWithDeadline creates a session between the same regions with a deadline of ms milliseconds
// for its transfers; 0 is no deadline.
func SessionWithDeadline(id uint64, ms int) (other uint64, err error) {
	defer guard(&err)
	s, err := sessions.Get(id)
	if err != nil {
		return 0, err
	}
	if ms < 0 {
		return 0, fmt.Errorf("deadline of %d ms, want 0 (none) or more: %w", ms, io.ErrInvalid)
	}
	if s.Session == nil {
		return sessions.Add(s), nil
	}
	return sessions.Add(&session{Session: s.WithDeadline(time.Duration(ms) * time.Millisecond)}), nil
}

// SessionCancel ends the transfers of the session with this uid; see StatusCancel.
func SessionCancel(id uint64, uid uint64, timeoutMS int) (n int, err error) {
	defer guard(&err)
	s, err := sessions.Get(id)
	if err != nil || s.Session == nil {
		return 0, err
	}
	ctx, cancel := patience(timeoutMS)
	defer cancel()
	return 0, s.Cancel(ctx, uid)
}

// StatusCancel ends the transfer of a status. If it returns no error, the transfer can write no
// more bytes on either side.
func StatusCancel(id uint64, timeoutMS int) (n int, err error) {
	defer guard(&err)
	s, err := statuses.Get(id)
	if err != nil {
		return 0, err
	}
	ctx, cancel := patience(timeoutMS)
	defer cancel()
	return 0, s.Cancel(ctx)
}

// patience returns a context that ends after ms milliseconds; never, if ms is negative.
func patience(ms int) (context.Context, context.CancelFunc) {
	if ms < 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
}

// SessionClose closes the handle. Pending transfers continue.
func SessionClose(id uint64) (n int, err error) {
	defer guard(&err)
	sessions.Remove(id)
	return 0, nil
}

// SessionDescribe returns which path the session uses, as JSON.
func SessionDescribe(id uint64) (text string, err error) {
	defer guard(&err)
	s, err := sessions.Get(id)
	if err != nil {
		return "", err
	}
	if s.Session == nil {
		return toJSON(io.SessionInfo{Reasons: []string{s.refusal.Message()}})
	}
	return toJSON(s.Session.Describe())
}

// moriPost submits the transfer that C describes. If the gate of the transfer is invalid, it sets
// *why to the text of an error, which C frees. It returns MORI_WOULD_WAIT if a connection must be
// opened first and may_wait is 0.
//
//export moriPost
func moriPost(t *C.mori_transfer, out *C.mori_status_ref, why **C.char) (answer C.int) {
	defer rescue(&answer)
	s, err := sessions.Get(uint64(t.session))
	if err != nil {
		return C.MORI_STALE
	}
	after, err := afterOf(t)
	if err != nil {
		*why = C.CString(err.Error())
		return C.MORI_OK
	}
	if s.Session == nil {
		refused := io.NewStatus()
		refused.Update(s.refusal.Code(), s.refusal.Message())
		give(refused, out)
		return C.MORI_OK
	}
	if t.may_wait == 0 && !s.Ready() {
		return C.MORI_WOULD_WAIT
	}
	r := io.Request{
		Write: t.write != 0, Local: words(t.local, t.nlocal), Remote: words(t.remote, t.nremote), BlockSize: uint64(t.block_size),
		UID: uint64(t.uid), Tag: C.GoStringN(t.tag, C.int(t.ntag)), After: after, Deadline: deadlineOf(t),
	}
	if t.block_size == 0 {
		r.Sizes = words(t.sizes, t.nsizes)
	}
	give(s.Submit(&r), out)
	return C.MORI_OK
}

func deadlineOf(t *C.mori_transfer) time.Duration {
	switch {
	case t.deadline_ms < 0:
		return 0 // the session's default
	case t.deadline_ms == 0:
		return io.NoDeadline
	}
	return time.Duration(t.deadline_ms) * time.Millisecond
}

// afterOf returns the gate of a transfer: a stream or an event of the caller, on the GPU with a
// number.
func afterOf(t *C.mori_transfer) (a io.After, err error) {
	if t.after == C.MORI_AFTER_NOTHING {
		return io.After{}, nil
	}
	defer guard(&err)
	d, err := gpuAt(int(min(uint64(t.after_gpu), 1<<31)))
	if err != nil {
		return io.After{}, err
	}
	if t.after == C.MORI_AFTER_STREAM {
		return io.AfterStream(d.ExternalStream(uint64(t.after_handle))), nil
	}
	return io.AfterEvent(d.ExternalEvent(uint64(t.after_handle))), nil
}

// words returns a view of n numbers at p, which C keeps alive during the call.
func words(p *C.uint64_t, n C.int64_t) []uint64 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(p)), int(n))
}
