// SPDX-License-Identifier: MIT

package pybind

import "mori/io"

// A session stands behind a session handle: a real one, or the status that every transfer of a pair gets which no
// backend can serve.
type session struct {
	*io.Session
	refusal *io.Status
}

var sessions = table[*session]{what: "session"}

// EngineCreateSession prepares transfers between two regions, given by packed descriptors in hex. 0 means that no
// backend can serve the pair.
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

// EngineSessionFor is EngineCreateSession for transfers without a session of their own. It never returns 0: when no
// backend can serve the pair, transfers on the handle fail with ERR_BAD_STATE.
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

// SessionAlive tells whether transfers can still succeed.
func SessionAlive(id uint64) (alive bool, err error) {
	defer guard(&err)
	s, err := sessions.get(id)
	if err != nil {
		return false, err
	}
	return s.Session != nil && s.Alive(), nil
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
