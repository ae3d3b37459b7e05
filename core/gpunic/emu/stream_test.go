// SPDX-License-Identifier: MIT

package emu_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
	"mori/core/gpunic/mlx5/mlx5test"
)

// The memory of the side that posts: bytes to send, which nothing changes, and places for answers,
// each used once. Of its peer: a window that all ops fall into, so that they overlap.
const (
	sourceBytes = 32 << 10
	windowBytes = 16 << 10
	landing     = sourceBytes
	landingEnd  = 192 << 10
)

// A stream posts random entries and keeps a model of what they make of the peer's memory.
type stream struct {
	t       *testing.T
	rnd     *rand.Rand
	a, b    *side
	model   []byte         // of b's window
	land    int            // where the next answer goes
	answers map[int][]byte // what must be at an offset of a's memory
	reads   [][2]int       // ranges of b that a read under way may still look at
	recvs   [][2]int       // receive entries offered: offset and size
	want    []mlx5.CQE     // of the receiver
	offered int
	late    []mlx5test.Span // receive entries that are known to the stream and not posted yet
	signals int
}

// TestStreams runs random entries against the model, for each seed of the chaos, on all wires.
func TestStreams(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	var total emu.Stats
	defer func() {
		if !t.Failed() && !testing.Short() {
			happened(t, total)
		}
	}()
	for seed := range seeds + 1 {
		wire := wires[seed%3]
		t.Run(fmt.Sprintf("seed %d on %s", seed, wire), func(t *testing.T) {
			chaos := emu.Profile(seed)
			cfg := mlx5.QueueConfig{SQLog: 4 + uint32(seed%3), RQLog: 4, Collapsed: seed%4 == 3, NoDBR: seed%5 == 4}
			mtu := []int{256, 1024, 4096}[seed%3]
			a, b := pair(t, setup{
				opts: emu.Options{Wire: wire, Seed: seed, Chaos: chaos, MTU: mtu}, queue: cfg, bytes: 256 << 10, also: mlx5.AccessRelaxed,
				path: mlx5.PathConfig{AckTimeout: 15, MinRNRTimer: 1},
			})
			s := &stream{t: t, rnd: rand.New(rand.NewPCG(seed, 2)), a: a, b: b, model: make([]byte, windowBytes), land: landing, answers: map[int][]byte{}}
			s.run(300)
			clean(t, a, b)
			add(&total, a.nic.Stats())
			if b.nic != a.nic {
				add(&total, b.nic.Stats())
			}
			if t.Failed() {
				t.Logf("chaos: %+v, queue: %+v, mtu %d", chaos, cfg, mtu)
			}
		})
	}
}

// add sums all counts.
func add(total *emu.Stats, s emu.Stats) {
	sum, one := reflect.ValueOf(total).Elem(), reflect.ValueOf(s)
	for i := range one.NumField() {
		sum.Field(i).SetUint(sum.Field(i).Uint() + one.Field(i).Uint())
	}
}

// happened wants each kind of trouble to have come.
func happened(t *testing.T, total emu.Stats) {
	all := reflect.ValueOf(total)
	for i := range all.NumField() {
		if all.Field(i).Uint() == 0 {
			t.Errorf("%s never happened: %+v", all.Type().Field(i).Name, total)
		}
	}
}

func (s *stream) run(entries int) {
	for i := range s.a.Mem[:sourceBytes] {
		s.a.Mem[i] = byte(s.rnd.Uint32())
	}
	s.a.post.NoBell = s.rnd.IntN(2) == 0
	for range entries {
		s.offer()
		s.insist(s.one)
		if s.rnd.IntN(4) == 0 {
			s.a.post.Ring()
		}
	}
	s.postReceives()
	for len(s.recvs) > 0 {
		s.insist(s.send)
	}
	s.unready()
	s.quiet()
	s.check()
}

// unready sends what there is no receive entry for, and offers one when the peer has said so:
// random entries alone need not lead to such a moment.
func (s *stream) unready() {
	s.quiet() // what is sent next has room, so that nobody offers the entry early
	s.receive()
	s.recvs = append(s.recvs, [2]int{windowBytes, 64})
	s.late = append(s.late, s.b.Span(windowBytes, 64))
	before := s.a.nic.Stats().NotReady
	s.insist(s.send)
	s.a.post.Ring()
	for end := time.Now().Add(patience); s.a.nic.Stats().NotReady == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("a send without a receive entry was not refused within %v: %+v", patience, s.a.nic.Stats())
		}
	}
	s.postReceives()
}

// insist does it as soon as there is room in the queue.
func (s *stream) insist(act func() error) {
	for err := act(); err != nil; err = act() {
		if !errors.Is(err, mlx5test.ErrFull) {
			s.t.Fatal(err)
		}
		s.makeRoom()
	}
}

func (s *stream) quiet() {
	s.a.post.Ring()
	s.insist(func() error { return s.a.post.Quiet(patience) })
}

// makeRoom waits for some completion.
func (s *stream) makeRoom() {
	p := s.a.post
	p.Ring()
	if len(s.late) > 0 && p.Until(p.View.Completed+1, time.Millisecond) == nil { // sends may find no receive entry meanwhile
		return
	}
	s.postReceives()
	if err := p.Until(p.View.Completed+1, patience); err != nil {
		s.t.Fatal(err)
	}
}

// flags are random; an entry that is the last for a while to be signalled is.
func (s *stream) flags() uint8 {
	s.signals++
	if s.signals%4 == 0 || s.rnd.IntN(3) == 0 {
		return mlx5.FlagSignalled
	}
	return 0
}

// fence is needed where an earlier read may look at what this entry changes: reads are answered
// when the peer gets to it.
func (s *stream) fence(at, n int) uint8 {
	for _, r := range s.reads {
		if at < r[1] && r[0] < at+n {
			return mlx5.FlagFence
		}
	}
	return 0
}

func (s *stream) span(limit, most int) (at, n int) {
	n = 1 + s.rnd.IntN(most)
	if s.rnd.IntN(3) > 0 {
		n = 1 + s.rnd.IntN(min(most, 300))
	}
	return s.rnd.IntN(limit - n), n
}

func (s *stream) one() error {
	switch k := s.rnd.IntN(10); {
	case k < 3:
		return s.write(false)
	case k < 4 && len(s.recvs) > 0:
		return s.write(true)
	case k < 5:
		return s.writeInline()
	case k < 7:
		return s.read()
	case k < 8 && len(s.recvs) > 0:
		return s.send()
	default:
		return s.atomic()
	}
}

func (s *stream) write(imm bool) error {
	from, n := s.span(sourceBytes, 8000)
	to := s.rnd.IntN(windowBytes - n)
	flags := s.flags() | s.fence(to, n)
	var err error
	if imm {
		v := s.rnd.Uint32()
		if _, err = s.a.post.WriteImm(s.a.Span(from, n), s.b.Span(to, 0), v, flags); err == nil {
			s.recvs = s.recvs[1:]
			s.want = append(s.want, mlx5.CQE{Opcode: mlx5.CQERecvImm, Imm: v, Bytes: uint32(n)})
		}
	} else {
		_, err = s.a.post.Write(s.a.Span(from, n), s.b.Span(to, 0), flags)
	}
	if err == nil {
		copy(s.model[to:], s.a.Mem[from:from+n])
	}
	return err
}

func (s *stream) writeInline() error {
	from := s.rnd.IntN(sourceBytes - 200)
	n := 1 + s.rnd.IntN(180)
	to := s.rnd.IntN(windowBytes - n)
	_, err := s.a.post.WriteInline(s.a.Mem[from:from+n], s.b.Span(to, 0), s.flags()|s.fence(to, n))
	if err == nil {
		copy(s.model[to:], s.a.Mem[from:from+n])
	}
	return err
}

func (s *stream) read() error {
	from, n := s.span(windowBytes, 3000)
	if s.land+n > landingEnd {
		return nil
	}
	_, err := s.a.post.Read(s.b.Span(from, 0), s.a.Span(s.land, n), s.flags())
	if err == nil {
		s.answers[s.land] = bytes.Clone(s.model[from : from+n])
		s.land += n
		s.reads = append(s.reads, [2]int{from, from + n})
	}
	return err
}

// atomic does one of the four kinds, of 4 or 8 bytes, to a word of the window.
func (s *stream) atomic() error {
	kind := []uint8{mlx5.OpFetchAdd, mlx5.OpCompareSwap, mlx5.OpMaskedAdd, mlx5.OpMaskedSwap}[s.rnd.IntN(4)]
	width := 8
	if kind >= mlx5.OpMaskedSwap && s.rnd.IntN(2) == 0 {
		width = 4
	}
	all := uint64(1)<<(8*width-1)<<1 - 1
	at := s.rnd.IntN(windowBytes/8) * 8
	var word [8]byte
	copy(word[:], s.model[at:at+width])
	old := binary.LittleEndian.Uint64(word[:])
	op := mlx5.Atomic{Width: width, Swap: s.rnd.Uint64() & all, Compare: s.rnd.Uint64() & all, SwapMask: s.rnd.Uint64() & all, CompareMsk: s.rnd.Uint64() & all}
	if s.rnd.IntN(2) == 0 {
		op.Compare = old
	}
	if kind == mlx5.OpMaskedAdd {
		op.SwapMask &= s.rnd.Uint64() // few tops of fields
	}
	_, err := s.a.post.Atomic(kind, op, s.b.Span(at, 0), s.a.Span(s.land, width), s.flags()|s.fence(at, width))
	if err != nil {
		return err
	}
	s.answers[s.land] = bytes.Clone(word[:width])
	s.land += width
	binary.LittleEndian.PutUint64(word[:], modelAtomic(kind, op, old)&all)
	copy(s.model[at:at+width], word[:width])
	return nil
}

// modelAtomic says what an atomic makes of a word, bit by bit where it is masked.
func modelAtomic(kind uint8, a mlx5.Atomic, old uint64) uint64 {
	switch kind {
	case mlx5.OpFetchAdd:
		return old + a.Swap
	case mlx5.OpCompareSwap:
		if old == a.Compare {
			return a.Swap
		}
		return old
	}
	var v, carry uint64
	for i := range 8 * a.Width {
		bit := func(x uint64) uint64 { return x >> i & 1 }
		if kind == mlx5.OpMaskedSwap {
			if old&a.CompareMsk != a.Compare&a.CompareMsk {
				return old
			}
			if bit(a.SwapMask) == 1 {
				v |= bit(a.Swap) << i
			} else {
				v |= bit(old) << i
			}
			continue
		}
		sum := bit(old) + bit(a.Swap) + carry
		v |= (sum & 1) << i
		if carry = sum >> 1; bit(a.SwapMask) == 1 {
			carry = 0
		}
	}
	return v
}

// offer posts a receive entry, sometimes, into the part of b's memory behind the window. Without
// one, sends wait: RNR.
func (s *stream) offer() {
	if s.rnd.IntN(3) > 0 {
		return
	}
	if len(s.recvs)+len(s.want) < 16 {
		at, n := windowBytes+2048*(s.offered%100), 64+s.rnd.IntN(1000)
		s.offered++
		s.recvs = append(s.recvs, [2]int{at, n})
		s.late = append(s.late, s.b.Span(at, n))
	}
	if s.rnd.IntN(2) == 0 {
		s.postReceives()
	}
	for {
		c, ok := s.b.recv.Poll()
		if !ok {
			return
		}
		s.received(c)
	}
}

// postReceives posts the receive entries that have been put off: sends may be on their way already.
func (s *stream) postReceives() {
	for _, r := range s.late {
		if err := s.b.recv.Post(r); err != nil {
			s.t.Fatal(err)
		}
	}
	s.late = nil
}

// received compares a completion of the receiver with the oldest that is expected.
func (s *stream) received(c mlx5.CQE) {
	s.t.Helper()
	if len(s.want) == 0 {
		s.t.Fatalf("%+v was received and not sent", c)
	}
	w := s.want[0]
	if s.want = s.want[1:]; c.Opcode != w.Opcode || c.Imm != w.Imm || c.Bytes != w.Bytes {
		s.t.Fatalf("%+v was received, want %+v", c, w)
	}
}

func (s *stream) send() error {
	r := s.recvs[0]
	from, n := s.span(sourceBytes, r[1])
	imm := s.rnd.Uint32()
	_, err := s.a.post.Send(&imm, s.flags(), s.a.Span(from, n))
	if err == nil {
		s.recvs = s.recvs[1:]
		s.want = append(s.want, mlx5.CQE{Opcode: mlx5.CQERecvSendImm, Imm: imm, Bytes: uint32(n)})
	}
	return err
}

// receive takes all completions that are to come.
func (s *stream) receive() {
	for len(s.want) > 0 {
		c, err := s.b.recv.Next(patience)
		if err != nil {
			s.t.Fatal(err)
		}
		s.received(c)
	}
}

func (s *stream) check() {
	s.receive()
	if !bytes.Equal(s.b.Mem[:windowBytes], s.model) {
		for i := range s.model {
			if s.b.Mem[i] != s.model[i] {
				s.t.Fatalf("the peer's memory differs from byte %d on", i)
			}
		}
	}
	for at, want := range s.answers {
		if got := s.a.Mem[at : at+len(want)]; !bytes.Equal(got, want) {
			s.t.Errorf("answer at %d: %x, want %x", at, got[:min(len(got), 16)], want[:min(len(want), 16)])
		}
	}
}
