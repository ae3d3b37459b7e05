// SPDX-License-Identifier: MIT

package verbstest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"mori/native/verbs"
)

const (
	patience = 30 * time.Second // for anything that comes; long enough on a busy machine, and for soft-RoCE
	bufBytes = 1 << 20
	allow    = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
)

// A node is a device that is open, with a domain.
type node struct {
	ctx  verbs.Context
	pd   verbs.PD
	gid  verbs.GIDEntry
	mtu  int
	undo []func() error
}

// openNode opens the device of a number. What it made it has closed in close.
func openNode(device int) (n *node, err error) {
	devices, err := verbs.Devices()
	if err != nil || device >= len(devices) {
		return nil, fmt.Errorf("there is no device %d: %w", device, errors.Join(err))
	}
	n = &node{}
	if n.ctx, err = verbs.Open(devices[device].Name); err != nil {
		return nil, err
	}
	n.undo = append(n.undo, n.ctx.Close)
	port, err := n.ctx.Port(1)
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.mtu = port.MTU
	gids, err := n.ctx.GIDs(1)
	if err != nil || len(gids) == 0 {
		return nil, errors.Join(fmt.Errorf("%d GIDs: %w", len(gids), err), n.close())
	}
	for _, g := range gids {
		if n.gid.GID == [16]byte{} || g.GID[10] == 0xff && g.GID[11] == 0xff { // that of an IPv4 address is always routed
			n.gid = g
		}
	}
	if n.pd, err = n.ctx.AllocPD(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.undo = append(n.undo, n.pd.Close)
	return n, nil
}

// close undoes in reverse.
func (n *node) close() error {
	var all error
	for i := len(n.undo) - 1; i >= 0; i-- {
		all = errors.Join(all, n.undo[i]())
	}
	n.undo = nil
	return all
}

// A side is a queue pair with its completion queues and a buffer.
type side struct {
	*node
	qp         verbs.QP
	send, recv verbs.CQ
	channel    verbs.Channel
	mr         verbs.MR
	buf        []byte
	lkey       uint32
	address
}

// An address is what a peer needs.
type address struct {
	Num, PSN uint32
	GID      [16]byte
	Addr     uint64
	RKey     uint32
}

// settings are what a test changes of a connection.
type settings struct {
	mtu, psn, rd, destRd   int
	retries, rnr, rnrTimer uint8
	access                 verbs.Access
}

// usual are fast to give up and never tired of waiting for a receiver.
func usual() settings {
	return settings{rd: 4, destRd: 4, retries: 1, rnr: 7, rnrTimer: 1, access: allow}
}

var common = verbs.QPInit{SendWR: 64, RecvWR: 64, SendSGE: 3, RecvSGE: 3, Inline: 64}

// newSide makes a queue pair. access are the rights of its buffer.
func (n *node) newSide(in verbs.QPInit, access verbs.Access, entries int) (s *side, err error) {
	s = &side{node: n}
	if s.channel, err = n.ctx.NewChannel(); err != nil {
		return nil, err
	}
	n.undo = append(n.undo, s.channel.Close)
	if s.send, err = n.ctx.NewCQ(entries, s.channel, 1); err != nil {
		return nil, err
	}
	n.undo = append(n.undo, s.send.Close)
	if s.recv, err = n.ctx.NewCQ(entries, s.channel, 2); err != nil {
		return nil, err
	}
	n.undo = append(n.undo, s.recv.Close)
	in.SendCQ, in.RecvCQ = s.send, s.recv
	if s.qp, s.Num, _, err = n.pd.NewQP(in); err != nil {
		return nil, err
	}
	n.undo = append(n.undo, func() error {
		if s.qp == 0 {
			return nil
		}
		return s.qp.Close()
	})
	var keys verbs.Keys
	if s.buf, s.Addr, err = pages(bufBytes); err != nil {
		return nil, err
	}
	n.undo = append(n.undo, func() error { return unmap(s.buf) })
	if s.mr, keys, err = n.pd.RegMR(s.Addr, bufBytes, s.Addr, access); err != nil {
		return nil, err
	}
	n.undo = append(n.undo, func() error { return s.mr.Close() })
	s.lkey, s.RKey, s.GID, s.PSN = keys.Local, keys.Remote, n.gid.GID, s.Num&0xffff
	return s, nil
}

// connect takes a side to where it sends and receives.
func (s *side) connect(peer address, with settings) error {
	if with.mtu == 0 {
		with.mtu = s.mtu
	}
	if err := s.qp.Init(1, with.access); err != nil {
		return err
	}
	rtr := verbs.RTR{MTU: with.mtu, DestQP: peer.Num, PSN: (peer.PSN + uint32(with.psn)) & 0xffffff, Port: 1, GIDIndex: s.gid.Index, GID: peer.GID,
		Global: true, HopLimit: 64, MaxDestRdAtomic: uint8(with.destRd), MinRNRTimer: with.rnrTimer}
	if err := s.qp.RTR(rtr); err != nil {
		return err
	}
	timeout := uint8(14)
	if Real() { // soft-RoCE on a slow machine takes long to answer
		timeout = 18
	}
	return s.qp.RTS(verbs.RTS{PSN: s.PSN, Timeout: timeout, Retries: with.retries, RNRRetries: with.rnr, MaxRdAtomic: uint8(with.rd)})
}

// sge is n bytes of the buffer from off on.
func (s *side) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.Addr + uint64(off), Len: uint32(n), LKey: s.lkey}
}

func (s *side) post(wr verbs.SendWR, sges ...verbs.SGE) error {
	wr.Count = uint32(len(sges))
	_, err := s.qp.PostSend([]verbs.SendWR{wr}, sges)
	return err
}

func (s *side) receive(id uint64, sges ...verbs.SGE) error {
	_, err := s.qp.PostRecv([]verbs.RecvWR{{ID: id, Count: uint32(len(sges))}}, sges)
	return err
}

// poll reads n completions of a queue.
func poll(q verbs.CQ, n int) ([]verbs.WC, error) {
	var all []verbs.WC
	for end := time.Now().Add(patience); len(all) < n; {
		var wcs [16]verbs.WC
		got, err := q.Poll(wcs[:min(n-len(all), len(wcs))])
		if err != nil {
			return all, err
		}
		all = append(all, wcs[:got]...)
		if got == 0 {
			if time.Now().After(end) {
				return all, fmt.Errorf("%d of %d completions came in %v", len(all), n, patience)
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
	return all, nil
}

// A tester is two connected sides and a test.
type tester struct {
	testing.TB
	a, b *side
}

// newTester connects a side on one device with one on another, which may be the same.
func newTester(tb testing.TB, from, to int, in verbs.QPInit, with ...func(a, b *settings)) *tester {
	tb.Helper()
	Need(tb, max(from, to)+1)
	t := &tester{TB: tb}
	t.a, t.b = t.side(from, in), t.side(to, in)
	as, bs := usual(), usual()
	for _, f := range with {
		f(&as, &bs)
	}
	t.ok(t.a.connect(t.b.address, as))
	t.ok(t.b.connect(t.a.address, bs))
	return t
}

func (t *tester) side(device int, in verbs.QPInit) *side {
	t.Helper()
	n, err := openNode(device)
	t.ok(err)
	t.Cleanup(func() { t.ok(n.close()) })
	s, err := n.newSide(in, allow, 256)
	t.ok(err)
	return s
}

func (t *tester) ok(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ends wants these statuses of the next completions of a queue, with IDs from 1 on.
func (t *tester) ends(q verbs.CQ, statuses ...verbs.Status) []verbs.WC {
	t.Helper()
	wcs, err := poll(q, len(statuses))
	t.ok(err)
	for i, wc := range wcs {
		if wc.Status != statuses[i] || wc.ID != uint64(i)+1 {
			t.Fatalf("completion %d is %+v, want ID %d with %v", i, wc, i+1, statuses[i])
		}
	}
	return wcs
}

// event waits for the next asynchronous event of a side.
func (t *tester) event(s *side, kind verbs.EventKind) verbs.AsyncEvent {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		e, err := s.ctx.AsyncEvent()
		if err == nil {
			if e.Kind != kind {
				t.Fatalf("the event is %+v, want %v", e, kind)
			}
			return e
		}
		if time.Now().After(end) {
			t.Fatalf("no %v came in %v: %v", kind, patience, err)
		}
	}
}

func (t *tester) state(s *side, want verbs.State) {
	t.Helper()
	got, err := s.qp.State()
	t.ok(err)
	if got != want {
		t.Errorf("a pair is in %v, want %v", got, want)
	}
}
