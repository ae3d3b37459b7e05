// SPDX-License-Identifier: MIT

package p2p

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/pathbase"
)

type sentFrame struct {
	kind uint8
	body []byte
}

// A fakeEndpoint notes what a data path does to its stream.
type fakeEndpoint struct {
	mu     sync.Mutex
	frames []sentFrame
	failed error
}

func (e *fakeEndpoint) Finish(conn.Ticket, error) {}
func (e *fakeEndpoint) Forward(conn.Ticket)       {}
func (e *fakeEndpoint) HandBack(conn.Ticket)      {}
func (e *fakeEndpoint) Peer() fabric.Addr         { return "@fake" }
func (e *fakeEndpoint) Fail(err error)            { e.failed = err }
func (e *fakeEndpoint) SendFrame(kind uint8, body []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frames = append(e.frames, sentFrame{kind, append([]byte(nil), body...)})
	return nil
}

// newPathAlone makes a data path whose peer is the test.
func newPathAlone(t *testing.T) (*dataPath, *fakeEndpoint) {
	t.Helper()
	page := func() fence {
		b, err := sys.Alloc(pageBytes)
		ok(t, err)
		return newFence(b)
	}
	peer := &peerProcess{ours: page(), theirs: page(), process: &local.Peer{}}
	t.Cleanup(peer.Release)
	ep, table, opts := &fakeEndpoint{}, regions.NewTable(), &Options{Log: quiet, releaseWait: pathbase.ReleaseWait}
	dp := newDataPath(ep, peer, table, opts)
	ds := newDomains(opts)
	ds.Open = func(*conn.Domain) *domain { return newDomain(ds, table) }
	dp.domain = ds.Join(nil, &dp.member)
	return dp, ep
}

// The bodies of frames of grants, written out: what peers of other versions send.
func ticketBody(ticket uint64) []byte { return binary.BigEndian.AppendUint64(nil, ticket) }

func grantBody(ticket uint64) []byte { return append(ticketBody(ticket), someRef.encode()...) }

func askBody(ticket uint64, key fabric.RegionKey) []byte {
	return append(binary.BigEndian.AppendUint64(ticketBody(ticket), key.ID), key.Secret[:]...)
}

// A peer that says what the protocol does not allow loses its connection; one that claims what it
// has no right to is refused.
func TestHostileFrames(t *testing.T) {
	share := grantBody(grant.ShareBit | 1)
	order := func(number uint64, last bool, parts int) []byte {
		return (&orderFrame{number: number, share: grant.ShareBit | 9, key: someKey, last: last, parts: make([]orderPart, parts)}).append(nil)
	}
	for name, frames := range map[string][]sentFrame{
		"unknown kind":                    {{77, nil}},
		"a grant that nobody asked for":   {{grant.FrameGrant, grantBody(5)}},
		"a refusal that nobody asked for": {{grant.FrameRefuse, binary.BigEndian.AppendUint32(ticketBody(5), uint32(fabric.ErrNoKey))}},
		"a share twice":                   {{grant.FrameGrant, share}, {grant.FrameGrant, share}},
		"revoke of nothing":               {{grant.FrameRevoke, ticketBody(3)}},
		"return of nothing":               {{grant.FrameReturn, ticketBody(3)}},
		"an ask with a share's ticket":    {{grant.FrameRequest, askBody(grant.ShareBit, someKey)}},
		"an answer to no order":           {{frameDone, doneFrame{number: 1}.encode()}},
		"an order inside another":         {{frameOrder, order(1, false, 1)}, {frameOrder, order(2, false, 1)}},
		"half a part":                     {{frameOrder, order(1, true, 1)[:orderHead+5]}},
		"an empty order frame":            {{frameOrder, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			dp, _ := newPathAlone(t)
			defer dp.Close(fabric.ErrCanceled)
			var err error
			for _, f := range frames {
				err = dp.Frame(f.kind, f.body)
			}
			if !errors.Is(err, fabric.ErrProtocol) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("parts without end", func(t *testing.T) {
		dp, _ := newPathAlone(t)
		defer dp.Close(fabric.ErrCanceled)
		var err error
		for i := 0; err == nil && i <= maxParts/100; i++ {
			err = dp.Frame(frameOrder, order(1, false, 100))
		}
		if !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an order under no share", func(t *testing.T) {
		dp, ep := newPathAlone(t)
		defer dp.Close(fabric.ErrCanceled)
		ok(t, dp.Frame(frameOrder, order(1, true, 1)))
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
		dp, ep := newPathAlone(t)
		defer dp.Close(fabric.ErrCanceled)
		ok(t, dp.Frame(grant.FrameRequest, askBody(1, someKey)))
		if len(ep.frames) != 1 || ep.frames[0].kind != grant.FrameRefuse {
			t.Errorf("%+v", ep.frames)
		}
	})
}
