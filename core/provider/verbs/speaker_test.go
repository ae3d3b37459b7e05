// SPDX-License-Identifier: MIT

package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/inet"
	"mori/native/verbs/verbstest"
)

// A speaker is a peer that speaks the stream's protocol and says for the rest what the test wants.
type speaker struct {
	*end
	port conn.Port // from the connection on
	came chan frame
	over chan struct{} // the connection has ended
}

// A mouth is the speaker's data path.
type mouth struct{ *speaker }

func (mouth) RMA(conn.Ticket, *fabric.Op, fabric.RegionKey) bool { return false }
func (mouth) Describe() (name, reason string)                    { return "test", "" }
func (m mouth) Close(error)                                      { close(m.over) }

func (m mouth) Frame(kind uint8, body []byte) error {
	select {
	case m.came <- frame{kind, append([]byte(nil), body...)}:
	default: // nobody listens
	}
	return nil
}

func newSpeaker(tb testing.TB) *speaker {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	tb.Cleanup(cancel)
	s := &speaker{end: &end{ctx: ctx, log: &logBuffer{}}, came: make(chan frame, 64), over: make(chan struct{})}
	tcp := inet.Sockets{Provider: "verbs", UserTimeout: inet.DefaultUserTimeout, Logger: quiet}
	fab, err := conn.New(conn.Config{
		Info: New(Options{}).Info, Transport: sockets{tcp}, Links: 1, Logger: quiet,
		Attach: func(p conn.Port, _ any) (conn.DataPath, error) {
			s.port = p
			return mouth{s}, nil
		},
	})
	ok(tb, err)
	s.fab, s.closed = fab, append(s.closed, fab.Close)
	tb.Cleanup(func() { ok(tb, s.close()) })
	ok(tb, s.open(16))
	return s
}

// hears waits for a frame of a kind.
func (s *speaker) hears(tb testing.TB, kind uint8) []byte {
	tb.Helper()
	for {
		select {
		case f := <-s.came:
			if f.kind == kind {
				return f.body
			}
		case <-s.ctx.Done():
			tb.Fatalf("no frame of kind %d came", kind)
		}
	}
}

func (s *speaker) says(tb testing.TB, kind uint8, body []byte) {
	tb.Helper()
	ok(tb, s.port.SendFrame(kind, body))
}

// saysAll says as much as the victim listens to: it may have had enough of the first.
func (s *speaker) saysAll(tb testing.TB, all []frame) {
	tb.Helper()
	for i, f := range all {
		if err := s.port.SendFrame(f.kind, f.body); err != nil && i == 0 {
			tb.Fatal(err)
		}
	}
}

// like is an offer or answer that the victim's devices can take.
func like(tb testing.TB, v *victim) railDesc {
	tb.Helper()
	n := v.fab.(*network).all.nics[0]
	gid, err := n.address(nil)
	ok(tb, err)
	return railDesc{gid: gid.GID, link: n.link.LinkLayer, mtu: 1024, readDepth: 4, recvs: 4, qps: []uint32{5, 6}}
}

// A peer that dials and does not set rails up as it should.
func TestHostileDialer(t *testing.T) {
	v := newVictim(t, way{Settings: Settings{QPs: 2}})
	good := like(t, v)
	other := good
	other.link = 77
	granted := append(binary.BigEndian.AppendUint64(nil, 1), someRefs[0].encode()...)
	for name, c := range map[string]struct {
		say   []frame
		cause fabric.Errno
	}{
		"answers":                 {[]frame{{frameAnswer, encodeRails([]railDesc{good})}}, fabric.ErrProtocol},
		"is up before its offer":  {[]frame{{frameUp, nil}}, fabric.ErrProtocol},
		"is up before the answer": {[]frame{{frameOffer, encodeRails([]railDesc{good})}, {frameUp, nil}, {frameUp, nil}}, fabric.ErrProtocol},
		"offers twice":            {[]frame{{frameOffer, encodeRails([]railDesc{good})}, {frameOffer, encodeRails([]railDesc{good})}}, fabric.ErrProtocol},
		"offers another network":  {[]frame{{frameOffer, encodeRails([]railDesc{other})}}, fabric.ErrNoData},
		"offers garbage":          {[]frame{{frameOffer, pattern(200, 3)}}, fabric.ErrProtocol},
		"grants too early":        {[]frame{{grant.FrameGrant, granted}}, fabric.ErrProtocol},
		"gives credit too early":  {[]frame{{frameCredit, []byte{0, 0, 0, 1}}}, fabric.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpeaker(t)
			ok(t, v.renew())
			ok(t, connect(s.end, v.end))
			s.saysAll(t, c.say)
			v.suffers(t, c.cause)
		})
	}
}

// A peer that leaves its part out: the connection ends all the same, and so does what waits for it,
// a region that it asked for among that.
func TestPeerSaysNothing(t *testing.T) {
	leavesNothing(t)
	for _, what := range []string{"never offers", "is never up", "never answers"} {
		t.Run(what, func(t *testing.T) {
			s, v := newSpeaker(t), &victim{end: newEnd(t, way{setupWait: 100 * time.Millisecond})}
			mem := v.memory(t, 4096)
			if what == "never answers" {
				ok(t, connect(v.end, s.end))
			} else {
				ok(t, connect(s.end, v.end))
				key, _, err := fabric.ParseRegionKey(mem.mr.Raw())
				ok(t, err)
				ask := append(binary.BigEndian.AppendUint64(nil, 1), binary.BigEndian.AppendUint64(nil, key.ID)...)
				s.says(t, grant.FrameRequest, append(ask, key.Secret[:]...))
			}
			if what == "is never up" {
				s.says(t, frameOffer, encodeRails([]railDesc{like(t, v)}))
			}
			op := mem.write(4096, v.imports(t, s.memory(t, 4096).mr))
			if err := v.submit(op); err == nil {
				_, err := v.next()
				fails(t, err, fabric.ErrTimeout, "set up RDMA")
			}
			fails(t, v.ends(t), fabric.ErrTimeout, "set up RDMA")
			ok(t, mem.mr.Close())
		})
	}
}

// A peer that is dialed and does not set rails up as it should.
func TestHostileListener(t *testing.T) {
	v := newVictim(t, way{Settings: Settings{QPs: 2}})
	good := like(t, v)
	odd, more := good, good
	odd.gid, more.mtu = [16]byte{}, 300
	for name, c := range map[string]struct {
		offered bool // what is said comes after the offer
		say     []frame
		cause   fabric.Errno // 0: what the device thinks of it
	}{
		"offers at once":        {false, []frame{{frameOffer, encodeRails([]railDesc{good})}}, fabric.ErrProtocol},
		"offers, too":           {true, []frame{{frameOffer, encodeRails([]railDesc{good})}}, fabric.ErrProtocol},
		"is up":                 {true, []frame{{frameUp, nil}}, fabric.ErrProtocol},
		"answers at once":       {false, []frame{{frameAnswer, encodeRails([]railDesc{good})}, {frameAnswer, encodeRails([]railDesc{good})}}, fabric.ErrProtocol},
		"answers twice":         {true, []frame{{frameAnswer, encodeRails([]railDesc{good})}, {frameAnswer, encodeRails([]railDesc{good})}}, fabric.ErrProtocol},
		"answers with more":     {true, []frame{{frameAnswer, encodeRails([]railDesc{good, good})}}, fabric.ErrProtocol},
		"answers with nobody":   {true, []frame{{frameAnswer, encodeRails([]railDesc{odd})}}, 0},
		"has an MTU that is no": {true, []frame{{frameAnswer, encodeRails([]railDesc{more})}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpeaker(t)
			ok(t, v.renew())
			ok(t, connect(v.end, s.end))
			if c.offered {
				s.hears(t, frameOffer)
			}
			s.saysAll(t, c.say)
			if c.cause == 0 { // the device decides what it thinks of that, at once or when there is an op
				mem := v.memory(t, 4096)
				key := v.imports(t, s.memory(t, 4096).mr)
				if _, err := v.ep.Submit([]fabric.Op{mem.write(4096, key)}); err == nil {
					s.answersAsk(t, regionRef{base: mem.Addr, size: 4096, access: allRights, chunk: 4096, keys: [][]uint32{{7}}})
					if _, err := v.next(); err == nil {
						t.Error("an op to nobody succeeded")
					}
				}
				_ = v.ends(t)
				ok(t, v.ep.Close())
				ok(t, v.friend())
				return
			}
			v.suffers(t, c.cause)
		})
	}
}

// answersAsk grants a place when it is asked for, or sees the end.
func (s *speaker) answersAsk(tb testing.TB, p regionRef) {
	tb.Helper()
	for {
		select {
		case f := <-s.came:
			if f.kind == grant.FrameRequest {
				_ = s.port.SendFrame(grant.FrameGrant, append(f.body[:8:8], p.encode()...)) // it may have ended
				return
			}
		case <-s.over:
			return
		}
	}
}

// A peer that grants what cannot be.
func TestHostileLoans(t *testing.T) {
	verbstest.NeedEmulated(t) // which takes any number of a queue pair
	v := newVictim(t, way{})
	good := like(t, v)
	good.qps = good.qps[:1]
	p := regionRef{base: 1 << 20, size: 4096, access: allRights, chunk: 4096, keys: [][]uint32{{7}}}
	for name, c := range map[string]struct {
		change func(p *regionRef) []byte
		cause  fabric.Errno // of the op; the connection ends but for ErrAccess and ErrRange
	}{
		"for two rails":    {func(p *regionRef) []byte { p.keys = append(p.keys, p.keys[0]); return p.encode() }, fabric.ErrProtocol},
		"in half a frame":  {func(p *regionRef) []byte { b := p.encode(); return b[:len(b)-3] }, fabric.ErrProtocol},
		"in no pieces":     {func(p *regionRef) []byte { p.chunk = 0; return p.encode() }, fabric.ErrProtocol},
		"around the world": {func(p *regionRef) []byte { p.base = ^uint64(0) - 5; return p.encode() }, fabric.ErrProtocol},
		"without rights":   {func(p *regionRef) []byte { p.access = 0; return p.encode() }, fabric.ErrAccess},
		"too short":        {func(p *regionRef) []byte { p.size = 4095; return p.encode() }, fabric.ErrRange},
		"nowhere":          {func(p *regionRef) []byte { return p.encode() }, fabric.ErrConnReset},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpeaker(t)
			ok(t, v.renew())
			ok(t, connect(v.end, s.end))
			s.hears(t, frameOffer)
			s.says(t, frameAnswer, encodeRails([]railDesc{good}))
			s.hears(t, frameUp)
			mem := v.memory(t, 4096)
			ok(t, v.submit(mem.write(4096, v.imports(t, s.memory(t, 4096).mr))))
			ask := s.hears(t, grant.FrameRequest)
			q := p
			s.says(t, grant.FrameGrant, append(ask[:8:8], c.change(&q)...))
			_, err := v.next()
			fails(t, err, c.cause)
			if c.cause == fabric.ErrAccess || c.cause == fabric.ErrRange {
				ok(t, errors.Join(v.ep.Close(), v.friend()))
				return
			}
			v.suffers(t, c.cause)
		})
	}
}
