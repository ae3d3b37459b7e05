// SPDX-License-Identifier: MIT

package verbs

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/grant"
	"mori/native/verbs"
)

// A frame is one of the extension.
type frame struct {
	kind uint8
	body []byte
}

// A victim is a host with a connection to a friend, which must not suffer from what others say.
type victim struct {
	*end
	friendly fabric.Endpoint
	op       fabric.Op // to the friend
	came     []fabric.Completion
	said     int // of the log
}

func newVictim(tb testing.TB, w way) *victim {
	tb.Helper()
	e, friend := newEnds(tb, w)
	local, remote := e.memory(tb, 4096), friend.memory(tb, 4096)
	v := &victim{end: e, friendly: e.ep, op: local.write(4096, e.imports(tb, remote.mr))}
	ok(tb, v.friend())
	return v
}

// friend does an op with the friend. It keeps the completions of remote data that come before it.
func (v *victim) friend() error {
	if _, err := v.friendly.Submit([]fabric.Op{v.op}); err != nil {
		return err
	}
	for {
		c, err := v.next()
		if err != nil || c.Kind != fabric.OpRemoteWrite {
			return err
		}
		v.came = append(v.came, c)
	}
}

// suffers wants the connection of the case to end by cause, which the log says where it is the
// peer's fault, and the friend's to work.
func (v *victim) suffers(tb testing.TB, cause fabric.Errno, words ...string) {
	tb.Helper()
	fails(tb, v.ends(tb), cause, words...)
	log := v.log.String()
	if cause == fabric.ErrProtocol && (!strings.Contains(log[v.said:], "connection ended") || !strings.Contains(log[v.said:], cause.Error())) {
		tb.Errorf("the log says %q", log[v.said:])
	}
	v.said = len(log)
	ok(tb, v.ep.Close())
	ok(tb, v.friend())
}

// A peer that has the rails and then says what the protocol does not allow.
func TestHostileFrames(t *testing.T) {
	v := newVictim(t, way{Settings: Settings{QPs: 2}})
	credit := func(rail, pair byte, n uint16) frame {
		return frame{frameCredit, binary.BigEndian.AppendUint16([]byte{rail, pair}, n)}
	}
	place := someRefs[0]
	cases := map[string]frame{
		"an offer again":                  {frameOffer, encodeRails(someRails)},
		"an answer unasked":               {frameAnswer, encodeRails(someRails[:1])},
		"up twice":                        {frameUp, nil},
		"a credit too many":               credit(0, 0, 1),
		"65535 credits":                   credit(0, 1, 65535),
		"credits of no rail":              credit(1, 0, 1),
		"credits of no pair":              credit(0, 2, 1),
		"half a credit":                   {frameCredit, []byte{0, 0, 1}},
		"a grant that nobody asked for":   {grant.FrameGrant, append(make([]byte, 8), place.encode()...)},
		"a refusal that nobody asked for": {grant.FrameRefuse, append(make([]byte, 8), 0, 0, 0, 1)},
		"revoke of nothing":               {grant.FrameRevoke, make([]byte, 8)},
		"return of nothing":               {grant.FrameReturn, make([]byte, 8)},
		"a reason that is too long":       {frameNoRails, make([]byte, maxReason+1)},
		"an unknown kind":                 {200, []byte("what")},
	}
	for kind := uint8(0); kind <= frameCredit; kind++ {
		cases[fmt.Sprintf("garbage of kind %d", kind)] = frame{kind, pattern(61, int(kind))}
		if kind != frameUp { // which has no body
			cases[fmt.Sprintf("nothing of kind %d", kind)] = frame{kind, nil}
		}
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			bad := newEnd(t, way{Settings: Settings{QPs: 2}})
			ok(t, v.renew())
			ok(t, connect(bad, v.end))
			dp := bad.path(t)
			dp.ops.Send(f.kind, f.body)
			v.suffers(t, fabric.ErrProtocol)
		})
	}
}

// A peer that uses the queue pairs for what they are not for.
func TestHostileRequests(t *testing.T) {
	v := newVictim(t, way{Settings: Settings{RecvWR: 8}, cqSize: 16})
	target := v.memory(t, 4096)
	short := make([]byte, noticeLen)
	binary.BigEndian.PutUint64(short[16:], 1) // the first grant
	sge := verbs.SGE{Addr: sys.AddrOf(short), Len: noticeLen}
	send := verbs.SendWR{Op: verbs.OpSendImm, Flags: verbs.Inline | verbs.Signaled, Imm: 1<<24 | 1, Count: 1}
	for name, c := range map[string]struct {
		wr    func(verbs.SendWR, *verbs.SGE) verbs.SendWR
		times int
		cause fabric.Errno
	}{
		"a short send":          {func(w verbs.SendWR, s *verbs.SGE) verbs.SendWR { s.Len = 8; return w }, 1, fabric.ErrProtocol},
		"a send without number": {func(w verbs.SendWR, _ *verbs.SGE) verbs.SendWR { w.Op = verbs.OpSend; return w }, 1, fabric.ErrProtocol},
		"a part of no op":       {func(w verbs.SendWR, _ *verbs.SGE) verbs.SendWR { w.Imm = 5; return w }, 1, fabric.ErrProtocol},
		"sends without credit":  {func(w verbs.SendWR, _ *verbs.SGE) verbs.SendWR { return w }, 64, fabric.ErrProtocol},
		"ops that never come whole": {func(w verbs.SendWR, _ *verbs.SGE) verbs.SendWR {
			w.Imm += 1 << 24
			return w
		}, 64, fabric.ErrProtocol},
		"a long send": {func(w verbs.SendWR, s *verbs.SGE) verbs.SendWR {
			s.Len = noticeLen + 1
			return w
		}, 1, fabric.ErrConnReset},
		"remote data without the key of a region": {func(w verbs.SendWR, _ *verbs.SGE) verbs.SendWR { return w }, 1, fabric.ErrProtocol},
		"a key that is none": {func(w verbs.SendWR, _ *verbs.SGE) verbs.SendWR {
			w.Op, w.RemoteAddr, w.RKey = verbs.OpWrite, target.Addr, 0x1234500
			return w
		}, 1, fabric.ErrConnReset},
		"an atomic": {func(w verbs.SendWR, _ *verbs.SGE) verbs.SendWR {
			w.Op, w.RemoteAddr, w.Flags = verbs.OpFetchAdd, target.Addr, verbs.Signaled
			return w
		}, 1, fabric.ErrConnReset},
	} {
		t.Run(name, func(t *testing.T) {
			bad := newEnd(t, way{Settings: Settings{RecvWR: 8}})
			ok(t, v.renew())
			ok(t, connect(bad, v.end))
			dp := bad.path(t)
			if name != "remote data without the key of a region" {
				ok(t, bad.do(bad.memory(t, 8).write(8, bad.imports(t, target.mr))))
			}
			s := sge
			if name == "a long send" {
				long := make([]byte, noticeLen+1)
				s.Addr = sys.AddrOf(long)
			}
			wr := c.wr(send, &s)
			if name == "an atomic" {
				own := bad.memory(t, 8)
				g := registerAll(dp.all, own.Buffer, 0)
				ok(t, g.err)
				defer func() { ok(t, g.Close()) }()
				s = verbs.SGE{Addr: own.Addr, Len: 8, LKey: g.keys[0][0].Local}
			}
			dp.rails.pairs[0].abuse(t, dp, wr, s, c.times)
			v.suffers(t, c.cause)
			ok(t, bad.ep.Close())
			if len(v.came) > 0 && name == "remote data without the key of a region" {
				t.Errorf("%d completions, the first %+v", len(v.came), v.came[0])
			}
			v.came = nil
		})
	}
}

// abuse posts a work request as often as it is taken, each with another number, behind the data
// path's back.
func (p *pair) abuse(tb testing.TB, dp *dataPath, wr verbs.SendWR, s verbs.SGE, times int) {
	tb.Helper()
	p.credits.Store(-1 << 30) // what comes back is none too many
	for i := 0; i < times && !dp.ops.IsStopped(); {
		p.mu.Lock()
		if p.tail-p.head < uint64(len(p.ring)) && p.broken == nil {
			unending := &posting{}
			unending.left.Store(2)
			p.ring[p.tail%uint64(len(p.ring))] = unending
			i++
			if wr.ID = p.tail; p.wire == nil {
				wr.Imm = wr.Imm&^uint32(numberMask) | uint32(i)
			}
			_, err := p.qp.PostSend([]verbs.SendWR{wr}, []verbs.SGE{s})
			ok(tb, err)
			p.tail++
		}
		p.mu.Unlock()
	}
}
