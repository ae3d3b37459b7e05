// SPDX-License-Identifier: MIT

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/receive"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// A fakeEndpoint stands in for the stream. It delivers frames in order on a goroutine and keeps the
// results of ops.
type fakeEndpoint struct {
	path   *dataPath
	table  *regions.Table
	cq     *util.CQ
	recv   *receive.Queue
	feed   *receive.Feed
	frames chan [2]any // kind, body
	peer   *fakeEndpoint

	mu    sync.Mutex
	ended map[conn.Ticket]error
	event chan struct{}

	failing sync.Once
	failed  chan error // the error that ended the connection
	stopped chan struct{}
	drop    func(kind uint8) bool // reports which of the peer's frames are lost
	deaf    bool                  // does not notice that the peer ended the connection
}

func (e *fakeEndpoint) Finish(t conn.Ticket, err error) {
	e.mu.Lock()
	if _, twice := e.ended[t]; twice {
		panic("an op ended twice")
	}
	e.ended[t] = err
	e.mu.Unlock()
	select {
	case e.event <- struct{}{}:
	default:
	}
}

// HandBack ends the op, because there is no stream here.
func (e *fakeEndpoint) HandBack(t conn.Ticket) { e.Finish(t, errHandedBack) }

var errHandedBack = errors.New("handed back to the stream")

func (e *fakeEndpoint) SendFrame(kind uint8, body []byte) error {
	select {
	case e.peer.frames <- [2]any{kind, append([]byte(nil), body...)}:
		return nil
	default:
		return fabric.ErrAgain
	}
}

func (e *fakeEndpoint) Fail(err error) {
	e.failing.Do(func() {
		e.failed <- err
		go func() {
			e.path.Close(err)
			close(e.stopped)
			if !e.peer.deaf {
				e.peer.Fail(fmt.Errorf("the peer is gone: %w", fabric.ErrConnReset))
			}
		}()
	})
}

// The bodies of grant frames, written out by hand as peers of other versions send them.
func ticketBody(ticket uint64) []byte { return binary.BigEndian.AppendUint64(nil, ticket) }

func askBody(ticket uint64, key fabric.RegionKey) []byte {
	return append(binary.BigEndian.AppendUint64(ticketBody(ticket), key.ID), key.Secret[:]...)
}

func grantBody(ticket uint64, s site) []byte { return append(ticketBody(ticket), s.encode()...) }

func refuseBody(ticket uint64, why fabric.Errno) []byte {
	return binary.BigEndian.AppendUint32(ticketBody(ticket), uint32(why))
}

func (e *fakeEndpoint) Peer() fabric.Addr   { return "@peer" }
func (e *fakeEndpoint) RecvCQ() *util.CQ    { return e.cq }
func (e *fakeEndpoint) SendCQ() *util.CQ    { return e.cq }
func (e *fakeEndpoint) Feed() *receive.Feed { return e.feed }

func (e *fakeEndpoint) Source() fabric.AVAddr { return 7 }

func (e *fakeEndpoint) receive() {
	for {
		select {
		case <-e.stopped:
			return
		case f := <-e.frames:
			kind, body := f[0].(uint8), f[1].([]byte)
			if e.drop != nil && e.drop(kind) {
				continue
			}
			if err := e.path.Frame(kind, body); err != nil {
				e.Fail(err)
			}
		}
	}
}

// wait returns how the op ended.
func (e *fakeEndpoint) wait(t testing.TB, ticket conn.Ticket) error {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		e.mu.Lock()
		err, ok := e.ended[ticket]
		e.mu.Unlock()
		if ok {
			return err
		}
		select {
		case <-e.event:
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("op %d did not end", ticket)
		}
	}
}

func (e *fakeEndpoint) running(ticket conn.Ticket) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.ended[ticket]
	return !ended
}

// greetPair connects two sockets and does the handshake of shm on them.
func greetPair(t testing.TB, opts *Options) (a, b *greeting) {
	t.Helper()
	l, err := transport{opts: opts}.Listen(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type result struct {
		g   *greeting
		err error
	}
	passive := make(chan result, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			passive <- result{nil, err}
			return
		}
		t.Cleanup(func() { conn.Close() })
		g, err := greetSoon(conn, opts)
		passive <- result{g, err}
	}()
	conn, err := transport{opts: opts}.Dial(t.Context(), fabric.Addr(l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	a, err = greetSoon(conn, opts)
	r := <-passive
	if err = errors.Join(err, r.err); err != nil {
		t.Fatal(err)
	}
	return a, r.g
}

func greetSoon(conn net.Conn, opts *Options) (*greeting, error) {
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	return greet(conn.(*net.UnixConn), opts)
}

// newPair makes two data paths that copy with the given way within this process.
func newPair(t testing.TB, way way) (a, b *fakeEndpoint) {
	t.Helper()
	opts := &Options{Log: quiet}
	ga, gb := greetPair(t, opts)
	make1 := func(g *greeting) *fakeEndpoint {
		g.reach = reach{way: way, pid: os.Getpid()}
		g.pages = g.reach.openPages(g.peer)
		cq, err := util.NewCQ(64)
		if err != nil {
			t.Fatal(err)
		}
		e := &fakeEndpoint{
			table: regions.NewTable(), cq: cq, frames: make(chan [2]any, 1000), ended: make(map[conn.Ticket]error),
			event: make(chan struct{}, 1), failed: make(chan error, 1), stopped: make(chan struct{}),
		}
		e.recv = receive.NewQueue(&util.Queues{Tx: cq, Rx: cq}, 1000)
		e.feed = e.recv.Feed(receive.FeedConfig{Room: 1 << 20, Changed: func() { e.path.Changed() }})
		ds := &domains{opts: opts, open: make(map[*conn.Domain]*domain)}
		key := &conn.Domain{}
		e.table.OnRevoke(func(region uint64) { ds.revoke(key, region) })
		e.path = newDataPath(e, g, opts)
		ds.adopt(key, e.table, e.path)
		return e
	}
	a, b = make1(ga), make1(gb)
	a.peer, b.peer = b, a
	go a.receive()
	go b.receive()
	t.Cleanup(func() {
		for _, e := range []*fakeEndpoint{a, b} {
			e.Fail(fabric.ErrConnAborted)
			select {
			case <-e.stopped:
			case <-time.After(20 * time.Second):
				t.Error("a path did not stop")
			}
		}
	})
	return a, b
}

// memory returns n bytes outside Go's heap.
func memory(t testing.TB, n int) ([]byte, uint64) {
	t.Helper()
	b, err := sys.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sys.Free(b) })
	return b, sys.AddrOf(b)
}

const allRights = fabric.AccessRemoteRead | fabric.AccessRemoteWrite

func regionKey(id uint64) fabric.RegionKey {
	return fabric.RegionKey{ID: id, Secret: [16]byte{byte(id), 1, 2, 3}}
}

// grantRegion registers n bytes at e under id.
func grantRegion(t testing.TB, e *fakeEndpoint, id uint64, n int, access fabric.Access) ([]byte, *regions.MR) {
	t.Helper()
	b, addr := memory(t, n)
	mr, err := e.table.Register(fabric.Buffer{Addr: addr, Len: uint64(n)}, access, regionKey(id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mr.Close() })
	return b, mr
}
