// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"sync"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/stream"
)

// A fakeEndpoint notes what a mover does to its stream.
type fakeEndpoint struct {
	mu     sync.Mutex
	frames []frame
	failed error
}

func (e *fakeEndpoint) Finish(stream.Ticket, error) {}
func (e *fakeEndpoint) Forward(stream.Ticket)       {}
func (e *fakeEndpoint) HandBack(stream.Ticket)      {}
func (e *fakeEndpoint) Peer() fabric.Addr           { return "@fake" }
func (e *fakeEndpoint) Fail(err error)              { e.failed = err }
func (e *fakeEndpoint) SendFrame(kind uint8, body []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frames = append(e.frames, frame{kind, append([]byte(nil), body...)})
	return nil
}

// newMoverAlone makes a mover whose peer is the test.
func newMoverAlone(t *testing.T) (*mover, *fakeEndpoint) {
	t.Helper()
	page := func() []byte {
		b, err := sys.Alloc(pageBytes)
		ok(t, err)
		return b
	}
	g := &greeting{ours: page(), theirs: page(), peer: &local.Peer{}}
	t.Cleanup(g.free)
	ep := &fakeEndpoint{}
	m := newMover(ep, g, util.NewMRTable(), &Options{Log: quiet, letGo: usualLetGo})
	ds := &domains{opts: &Options{Log: quiet}, open: make(map[*stream.Domain]*domain)}
	ds.join(nil, m)
	return m, ep
}

// A peer that says what the protocol does not allow loses its connection; one that claims what it has no right to is refused.
func TestHostileFrames(t *testing.T) {
	share := lendFrame{shareBit | 1, somePlace}.encode()
	order := func(number uint64, last bool, parts int) []byte {
		return (&orderFrame{number: number, share: shareBit | 9, key: someKey, last: last, parts: make([]orderPart, parts)}).append(nil)
	}
	for name, frames := range map[string][]frame{
		"unknown kind":                    {{77, nil}},
		"a loan that nobody asked for":    {{frameLend, lendFrame{5, somePlace}.encode()}},
		"a refusal that nobody asked for": {{frameRefuse, refuseFrame{5, fabric.ErrNoKey}.encode()}},
		"a share twice":                   {{frameLend, share}, {frameLend, share}},
		"revoke of nothing":               {{frameRevoke, encodeTicket(3)}},
		"return of nothing":               {{frameReturn, encodeTicket(3)}},
		"an ask with a share's ticket":    {{frameAsk, askFrame{shareBit, someKey}.encode()}},
		"an answer to no order":           {{frameDone, doneFrame{number: 1}.encode()}},
		"an order inside another":         {{frameOrder, order(1, false, 1)}, {frameOrder, order(2, false, 1)}},
		"half a part":                     {{frameOrder, order(1, true, 1)[:orderHead+5]}},
		"an empty order frame":            {{frameOrder, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := newMoverAlone(t)
			defer m.Stop(fabric.ErrCanceled)
			var err error
			for _, f := range frames {
				err = m.Frame(f.kind, f.body)
			}
			if !errors.Is(err, fabric.ErrProtocol) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("parts without end", func(t *testing.T) {
		m, _ := newMoverAlone(t)
		defer m.Stop(fabric.ErrCanceled)
		var err error
		for i := 0; err == nil && i <= maxParts/100; i++ {
			err = m.Frame(frameOrder, order(1, false, 100))
		}
		if !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an order under no share", func(t *testing.T) {
		m, ep := newMoverAlone(t)
		defer m.Stop(fabric.ErrCanceled)
		ok(t, m.Frame(frameOrder, order(1, true, 1)))
		ep.mu.Lock()
		defer ep.mu.Unlock()
		if len(ep.frames) != 1 || ep.frames[0].kind != frameDone {
			t.Fatalf("%d frames", len(ep.frames))
		}
		if d, err := parseDone(ep.frames[0].body); err != nil || d.err != fabric.ErrNoKey || d.unable {
			t.Errorf("%+v, %v", d, err)
		}
	})
	t.Run("a key of no region", func(t *testing.T) {
		m, ep := newMoverAlone(t)
		defer m.Stop(fabric.ErrCanceled)
		ok(t, m.Frame(frameAsk, askFrame{1, someKey}.encode()))
		if len(ep.frames) != 1 || ep.frames[0].kind != frameRefuse {
			t.Errorf("%+v", ep.frames)
		}
	})
}
