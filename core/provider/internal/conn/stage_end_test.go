// SPDX-License-Identifier: MIT

package conn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/staging"
	"mori/native/gpu/gputest"
)

// TestStagedFaults lets driver calls fail on either side. The op ends with an errno, and the next
// one succeeds.
func TestStagedFaults(t *testing.T) {
	gputest.NeedEmulated(t)
	const n = 2 << 20
	for name, c := range map[string]struct {
		fail      string
		near, far int
		want      fabric.Errno
		detail    string // of the op; if empty, the error is in the log
	}{
		"no copy out":            {"cuMemcpyAsync=1", 0, -1, fabric.ErrOther, "cuMemcpyAsync"},
		"no copy in there":       {"cuMemcpyAsync=1", -1, 0, fabric.ErrOther, ""},
		"no pinned memory":       {"cuMemHostAlloc=2", 0, -1, fabric.Errno(syscall.ENOMEM), "ulimit -l"},
		"no pinned memory there": {"cuMemHostAlloc=2", -1, 0, fabric.Errno(syscall.ENOMEM), ""},
		"no stream":              {"cuStreamCreateWithPriority=1", 0, -1, fabric.ErrOther, "cuStreamCreateWithPriority"},
		"a query that fails":     {"cuEventQuery=1", 0, -1, fabric.ErrOther, "cuEventQuery"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := devicePair(t, Config{})
			near, far := newStock(a, c.near, n), newStock(b, c.far, n)
			near.fill(1)
			far.fill(2)
			key := a.imported(far.key, n)
			ops := []fabric.Op{{Kind: fabric.OpWrite, Seg: near.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}, {Kind: fabric.OpRead, Seg: near.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}}
			t.Run("failing", func(t *testing.T) {
				gputest.Fail(t, c.fail)
				for _, op := range ops {
					err := a.do(op)[0]
					if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.detail) {
						t.Errorf("%v: %v, want %v with %q", op.Kind, err, c.want, c.detail)
					}
				}
			})
			if c.detail == "" {
				b.log.WaitFor(t, strings.Split(c.fail, "=")[0])
			}
			near.fill(3)
			far.fill(4)
			for _, op := range ops {
				a.must(a.do(op)[0])
			}
			copy(far.model, near.model)
			far.check("after all that")
		})
	}
}

// TestStagedEndsWait holds back the work of the devices and closes regions and endpoints. No close
// returns before the copies have ended.
func TestStagedEndsWait(t *testing.T) {
	gputest.NeedEmulated(t)
	const n = 3 << 20
	for name, end := range map[string]func(a, b *rig, near, far *stock) error{
		"the initiator's endpoint": func(a, _ *rig, _, _ *stock) error { return a.ep.Close() },
		"the initiator's region":   func(_, _ *rig, near, _ *stock) error { return near.mr.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := devicePair(t, Config{})
			near, far := newStock(a, 0, n), newStock(b, -1, n)
			near.fill(1)
			key := a.imported(far.key, n)
			op := fabric.Op{Kind: fabric.OpWrite, Seg: near.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
			a.must(a.do(op)[0]) // to create streams and buffers
			release := gputest.Hold(t)
			_, err := a.ep.Submit([]fabric.Op{op})
			a.must(err)
			waitCopying(a)
			over := make(chan error, 1)
			go func() { over <- end(a, b, near, far) }()
			select {
			case err := <-over:
				t.Errorf("it ended over a copy: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			release()
			a.must(<-over)
			if err := a.done(1)[0]; name == "the initiator's endpoint" && err == nil {
				t.Error("the op succeeded")
			}
		})
	}
	t.Run("the target's region", func(t *testing.T) {
		a, b := devicePair(t, Config{})
		near, far := newStock(a, -1, n), newStock(b, 0, n)
		near.fill(1)
		op := fabric.Op{Kind: fabric.OpWrite, Seg: near.seg(0, 1000), RSeg: fabric.RSeg{Len: 1000, Key: a.imported(far.key, n)}}
		a.must(a.do(op)[0])
		release := gputest.Hold(t)
		_, err := a.ep.Submit([]fabric.Op{op})
		a.must(err)
		waitCopying(b)
		over := make(chan error, 1)
		go func() { over <- far.mr.Close() }()
		select {
		case err := <-over:
			t.Errorf("it closed over a copy: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		release()
		b.must(<-over)
		a.must(a.done(1)[0])
	})
}

// waitCopying waits until the endpoint's device has a copy to do, which the test holds back.
func waitCopying(r *rig) {
	r.Helper()
	for end := time.Now().Add(testDeadline); ; time.Sleep(100 * time.Microsecond) {
		if copies, _ := r.ep.stage.Stats(); copies > 0 {
			return
		}
		if time.Now().After(end) {
			r.Fatal("nothing is copied")
		}
	}
}

// TestStagedStrangers lets a plain peer send what an honest one does not, and disconnect in the
// middle.
func TestStagedStrangers(t *testing.T) {
	gputest.Need(t)
	const n = 4 << 20
	in := &fabric.Info{Caps: fabric.CapMSG | fabric.CapRMA | fabric.CapHMEM}
	claim := func(s *stock, kind frame.Kind, length uint64) frame.Header {
		return frame.Header{Kind: kind, Ticket: 1, Count: 1, Length: length, Region: s.key.ID, Secret: s.key.Secret}
	}
	for name, act := range map[string]func(r *rig, s *stock, c io.ReadWriter){
		"goes in the middle of a write": func(r *rig, s *stock, c io.ReadWriter) {
			_, err := c.Write(encode(claim(s, frame.KindWrite, 1<<20), []fabric.RSeg{{Len: 1 << 20}}, make([]byte, 1000)))
			r.must(err)
		},
		"goes while it reads": func(r *rig, s *stock, c io.ReadWriter) {
			for range 8 {
				_, err := c.Write(encode(claim(s, frame.KindRead, 1<<20), []fabric.RSeg{{Len: 1 << 20}}, nil))
				r.must(err)
			}
		},
		"writes more than a piece": func(r *rig, s *stock, c io.ReadWriter) {
			_, err := c.Write(encode(claim(s, frame.KindWrite, staging.PieceLen+1), []fabric.RSeg{{Len: staging.PieceLen + 1}}, make([]byte, staging.PieceLen+1)))
			r.must(err)
			h, body := readFrame(r, c)
			if h.Kind != frame.KindAck || fabric.Errno(binary.BigEndian.Uint32(body[4:])) != fabric.ErrMsgSize {
				r.Errorf("%+v with %v", h, body)
			}
		},
		"reads more than a piece": func(r *rig, s *stock, c io.ReadWriter) {
			_, err := c.Write(encode(claim(s, frame.KindRead, staging.PieceLen+1), []fabric.RSeg{{Len: staging.PieceLen + 1}}, nil))
			r.must(err)
			if h, _ := readFrame(r, c); h.Kind != frame.KindReply || fabric.Errno(h.Data) != fabric.ErrMsgSize {
				r.Errorf("%+v", h)
			}
		},
		"writes past the end": func(r *rig, s *stock, c io.ReadWriter) {
			_, err := c.Write(encode(claim(s, frame.KindWrite, 8), []fabric.RSeg{{Addr: n - 4, Len: 8}}, make([]byte, 8)))
			r.must(err)
			h, body := readFrame(r, c)
			if h.Kind != frame.KindAck || fabric.Errno(binary.BigEndian.Uint32(body[4:])) != fabric.ErrRange {
				r.Errorf("%+v with %v", h, body)
			}
		},
		"sends other bytes than it summed": func(r *rig, s *stock, c io.ReadWriter) {
			h := claim(s, frame.KindWrite, 8)
			h.Flags, h.Checksum = frame.FlagChecksum, 12345
			_, err := c.Write(encode(h, []fabric.RSeg{{Len: 8}}, make([]byte, 8)))
			r.must(err)
			h, body := readFrame(r, c)
			if h.Kind != frame.KindAck || fabric.Errno(binary.BigEndian.Uint32(body[4:])) != fabric.ErrCRC {
				r.Errorf("%+v with %v", h, body)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigIn(t, Config{Links: 1}, in)
			s := newStock(r, 0, n)
			s.fill(1)
			c := r.dial(1)[0]
			act(r, s, c)
			r.must(c.Close())
			r.event(fabric.EventShutdown)
			r.must(s.mr.Close())
			s.check("after the stranger")
		})
	}
}

// TestStagedDoesNotAllocate checks that buffers, lists and pieces are reused.
func TestStagedDoesNotAllocate(t *testing.T) {
	a, b := devicePair(t, Config{})
	const n = 1 << 20
	near, far := newStock(a, 0, n), newStock(b, 0, n)
	key := a.imported(far.key, n)
	ops := []fabric.Op{{Kind: fabric.OpWrite, Seg: near.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}}
	done := make([]fabric.Completion, 1)
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		ops[0].Kind = kind
		if got := testing.AllocsPerRun(30, func() {
			_, err := a.ep.Submit(ops)
			a.must(err)
			_, err = a.cq.Wait(a.ctx, done)
			a.must(err)
		}); got >= 2 { // occasionally a list grows
			t.Errorf("%v allocations for a %v", got, kind)
		}
	}
}

// TestStagedShares moves more in both directions than there are buffers.
func TestStagedShares(t *testing.T) {
	a, b := devicePair(t, Config{Links: 2})
	const n = 40 << 20
	pairs := [][3]any{{a, b, fabric.OpWrite}, {b, a, fabric.OpWrite}, {a, b, fabric.OpRead}, {b, a, fabric.OpRead}}
	var nears, fars []*stock
	for i, p := range pairs {
		from, to := p[0].(*rig), p[1].(*rig)
		near, far := newStock(from, i%2, n), newStock(to, (i+1)%2, n)
		near.fill(i)
		far.fill(i + 10)
		nears, fars = append(nears, near), append(fars, far)
	}
	for i, p := range pairs {
		from := p[0].(*rig)
		op := fabric.Op{Kind: p[2].(fabric.OpKind), Seg: nears[i].seg(0, n), RSeg: fabric.RSeg{Len: n, Key: from.imported(fars[i].key, n)}, Ctx: uint64(i / 2)}
		_, err := from.ep.Submit([]fabric.Op{op})
		a.must(err)
	}
	for _, r := range []*rig{a, b} {
		for _, err := range r.done(2) {
			r.must(err)
		}
	}
	for i, p := range pairs {
		if p[2] == fabric.OpWrite {
			copy(fars[i].model, nears[i].model)
		} else {
			copy(nears[i].model, fars[i].model)
		}
		nears[i].check("near")
		fars[i].check("far")
	}
}

// TestStagedDelays lets devices be slow.
func TestStagedDelays(t *testing.T) {
	gputest.NeedEmulated(t)
	for seed := range 3 {
		gputest.Delay(t, seed+1)
		a, b := devicePair(t, Config{Links: 2})
		const n = 5<<20 + 7
		near, far := newStock(a, 0, n), newStock(b, 1, n)
		key := a.imported(far.key, n)
		for i := range 3 {
			near.fill(10*seed + i)
			a.must(a.do(fabric.Op{Kind: fabric.OpWrite, Seg: near.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}})[0])
			copy(far.model, near.model)
			far.check("written")
			far.fill(100*seed + i)
			a.must(a.do(fabric.Op{Kind: fabric.OpRead, Seg: near.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}})[0])
			copy(near.model, far.model)
			near.check("read")
		}
	}
}

// TestStagedStuckPeer lets a peer send many reads without receiving the replies. It leaves buffers
// to other peers, and gets its bytes once it receives.
func TestStagedStuckPeer(t *testing.T) {
	gputest.Need(t)
	const n, reads = 1 << 20, 48
	r := newRigIn(t, Config{Links: 1}, &fabric.Info{Caps: fabric.CapMSG | fabric.CapRMA | fabric.CapHMEM})
	s := newStock(r, 0, n)
	s.fill(1)
	c := r.dial(1)[0]
	for i := range reads {
		h := frame.Header{Kind: frame.KindRead, Ticket: uint32(i), Count: 1, Length: n, Region: s.key.ID, Secret: s.key.Secret}
		_, err := c.Write(encode(h, []fabric.RSeg{{Len: n}}, nil))
		r.must(err)
	}
	for end := time.Now().Add(testDeadline); ; time.Sleep(time.Millisecond) {
		_, replied := r.ep.stage.Stats()
		if replied >= staging.PieceBytes {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("replies have %d bytes of buffers", replied)
		}
	}
	a, b := devicePair(t, Config{})
	near, far := newStock(a, 0, 3*n), newStock(b, 0, 3*n)
	near.fill(2)
	a.must(a.do(fabric.Op{Kind: fabric.OpWrite, Seg: near.seg(0, 3*n), RSeg: fabric.RSeg{Len: 3 * n, Key: a.imported(far.key, 3*n)}})[0])
	copy(far.model, near.model)
	far.check("beside a peer that takes nothing")
	for range reads {
		if h, body := readFrame(r, c); h.Kind != frame.KindReply || h.Data != 0 || !bytes.Equal(body, s.model) {
			t.Fatalf("%+v, %d bytes", h, len(body))
		}
	}
	r.must(c.Close())
	r.event(fabric.EventShutdown)
}
