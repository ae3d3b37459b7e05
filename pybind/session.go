// SPDX-License-Identifier: MIT

package pybind

import (
	"context"
	"fmt"
	"time"

	"mori/io"
)

// A session stands behind a session handle: a real one, or the status that every transfer of a pair
// gets which no backend can serve.
type session struct {
	*io.Session
	refusal *io.Status
}

var sessions = table[*session]{what: "session"}

// EngineCreateSession prepares transfers between two regions, given by packed descriptors in hex. 0
// means that no backend can serve the pair.
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
	return sessions.add(&session{Session: s}), nil
}

// EngineSessionFor is EngineCreateSession for transfers without a session of their own. It never
// returns 0: when no backend can serve the pair, transfers on the handle fail with ERR_BAD_STATE.
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
	return sessions.add(&session{s, refusal}), nil
}

func engineAndPair(engine uint64, local, remote string) (e *io.Engine, l, r io.MemoryDesc, err error) {
	if e, err = engines.get(engine); err != nil {
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
	s, err := sessions.get(id)
	if err != nil {
		return false, err
	}
	return s.Session != nil && s.Alive(), nil
}

// SessionWithDeadline makes a session between the same regions whose transfers have ms
// milliseconds; 0 is no deadline.
func SessionWithDeadline(id uint64, ms int) (other uint64, err error) {
	defer guard(&err)
	s, err := sessions.get(id)
	if err != nil {
		return 0, err
	}
	if ms < 0 {
		return 0, fmt.Errorf("deadline of %d ms, want 0 (none) or more: %w", ms, io.ErrInvalid)
	}
	if s.Session == nil {
		return sessions.add(s), nil
	}
	return sessions.add(&session{Session: s.WithDeadline(time.Duration(ms) * time.Millisecond)}), nil
}

// SessionCancel ends the transfers of the session with this uid; see StatusCancel.
func SessionCancel(id uint64, uid uint64, timeoutMS int) (n int, err error) {
	defer guard(&err)
	s, err := sessions.get(id)
	if err != nil || s.Session == nil {
		return 0, err
	}
	ctx, cancel := patience(timeoutMS)
	defer cancel()
	return 0, s.Cancel(ctx, uid)
}

// StatusCancel ends the transfer of a status. Without an error no byte of it can land any more on
// either side.
func StatusCancel(id uint64, timeoutMS int) (n int, err error) {
	defer guard(&err)
	s, err := statuses.get(id)
	if err != nil {
		return 0, err
	}
	ctx, cancel := patience(timeoutMS)
	defer cancel()
	return 0, s.Cancel(ctx)
}

// patience bounds a call; a negative timeout does not.
func patience(ms int) (context.Context, context.CancelFunc) {
	if ms < 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
}

// SessionClose gives the handle back. Transfers under way go on.
func SessionClose(id uint64) (n int, err error) {
	defer guard(&err)
	sessions.remove(id)
	return 0, nil
}

// SessionDescribe returns which path the session uses, as JSON.
func SessionDescribe(id uint64) (text string, err error) {
	defer guard(&err)
	s, err := sessions.get(id)
	if err != nil {
		return "", err
	}
	if s.Session == nil {
		return toJSON(io.SessionInfo{Reasons: []string{s.refusal.Message()}})
	}
	return toJSON(s.Session.Describe())
}
