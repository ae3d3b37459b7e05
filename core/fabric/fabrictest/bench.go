// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// Bench measures the provider that open makes, on endpoints of the type that it offers first:
// latency of small ops, the rate of small ops, and bandwidth in a few shapes.
func Bench(b *testing.B, open Open) {
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		b.Run(kind.String()+"-8B-latency", func(b *testing.B) {
			newStream(b, open, kind, 8, 1, 1).run(b, 1)
		})
		b.Run(kind.String()+"-8B-rate", func(b *testing.B) {
			newStream(b, open, kind, 8, 1, 1).run(b, 64)
		})
		b.Run(kind.String()+"-1MiB", func(b *testing.B) {
			newStream(b, open, kind, 1<<20, 1, 32).run(b, 8)
		})
		b.Run(kind.String()+"-1024x4KiB", func(b *testing.B) {
			newStream(b, open, kind, 4096, 1024, 8).run(b, 4)
		})
	}
	b.Run("send-8B-latency", func(b *testing.B) { benchPingPong(b, open, 8) })
}

// A stream moves one buffer over and over.
type stream struct {
	a     *rig.Node
	ops   []fabric.Op // of which each moves another part of the buffers
	bytes int         // of one op
}

// newStream makes parts ops of segs blocks of size bytes, whose remote order is not the local one.
func newStream(b *testing.B, open Open, kind fabric.OpKind, size, segs, parts int) *stream {
	r := rig.New(b, open, 0)
	near, far := r.Pair(rig.Shape{})
	local, remote := r.Patterned(size*segs*parts, 1), r.Patterned(size*segs*parts, 2)
	to := near.Imports(far.Reg(remote, rig.BothRights).Raw())
	s := &stream{a: near, bytes: size * segs}
	for p := range parts {
		op := fabric.Op{Kind: kind, Ctx: uint64(p), Dest: near.Dest}
		for i := range segs {
			op.More = append(op.More, local.At((p*segs+i)*size, size).Seg())
			op.RMore = append(op.RMore, to.At(uint64((p*segs+i*389%segs)*size), uint64(size)))
		}
		op.Seg, op.More = op.More[0], op.More[1:]
		op.RSeg, op.RMore = op.RMore[0], op.RMore[1:]
		s.ops = append(s.ops, op)
	}
	return s
}

// run keeps up to depth ops in flight, submitted in one batch when all have ended.
func (s *stream) run(b *testing.B, depth int) {
	batch := make([]fabric.Op, depth)
	dst := make([]fabric.Completion, depth)
	b.SetBytes(int64(s.bytes))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += depth {
		todo := batch[:min(depth, b.N-i)]
		for j := range todo {
			todo[j] = s.ops[(i+j)%len(s.ops)]
		}
		for done := 0; done < len(todo); {
			n, err := s.a.EP.Submit(todo[done:])
			if err != nil && !errors.Is(err, fabric.ErrAgain) {
				b.Fatal(err)
			}
			done += n
			for n > 0 {
				k, err := s.a.CQ.Wait(s.a.Ctx, dst)
				if err != nil {
					b.Fatal(err)
				}
				n -= k
			}
		}
	}
}

// benchPingPong sends a message there and back. Sends succeed in silence.
func benchPingPong(b *testing.B, open Open, size int) {
	r := rig.New(b, open, 0)
	near, far := r.Pair(rig.Shape{Selective: true})
	nearBuf, farBuf := r.Alloc(size), r.Alloc(size)
	b.ReportAllocs()
	b.ResetTimer()
	done := make(chan error, 1)
	go func() { done <- pingPong(far, farBuf, b.N, false) }()
	if err := errors.Join(pingPong(near, nearBuf, b.N, true), <-done); err != nil {
		b.Fatal(err)
	}
}

// pingPong takes turns, and begins with sending or with receiving.
func pingPong(n *rig.Node, m rig.Buffer, turns int, first bool) error {
	send := []fabric.Op{{Kind: fabric.OpSend, Dest: n.Dest, Seg: m.Seg()}}
	recv := []fabric.Op{{Kind: fabric.OpRecv, Flags: fabric.OpWantCQE, Seg: m.Seg()}}
	for i := range turns {
		if _, err := n.EP.Submit(recv); err != nil {
			return err
		}
		if first || i > 0 {
			if _, err := n.EP.Submit(send); err != nil {
				return err
			}
		}
		e, err := rig.Next(n.Ctx, n.CQ)
		if err != nil {
			return err
		}
		if e.Err != 0 {
			return &e
		}
	}
	if first {
		return nil
	}
	_, err := n.EP.Submit(send)
	return err
}
