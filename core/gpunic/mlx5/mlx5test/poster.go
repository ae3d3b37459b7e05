// SPDX-License-Identifier: MIT

package mlx5test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
	"mori/core/internal/sys/thread"
	"mori/native/abi"
)

// ErrFull means that the ring has no room for an entry: poll first.
var ErrFull = errors.New("send queue is full")

// A Poster posts to a queue and reads its completions. It is not safe for concurrent use.
type Poster struct {
	View     abi.NICQueue // its counters are the poster's
	Errors   []mlx5.CQE   // failed completions
	NoBell   bool         // only Ring publishes entries
	lastBell uint64
}

// NewPoster returns a Poster for a new queue.
func NewPoster(q *mlx5.Queue) *Poster { return &Poster{View: q.View()} }

// A Span is memory with the key for its side.
type Span struct {
	Addr uint64
	N    uint32
	Key  uint32
}

// Post builds an entry from its segments, after the control segment. It returns how many blocks had
// been reserved before it.
func (p *Poster) Post(c mlx5.Control, segments ...[]byte) (at uint64, err error) {
	var b [(mlx5.MaxSegments + 1) * mlx5.SegmentBytes]byte
	n := mlx5.SegmentBytes
	for _, s := range segments {
		if n+len(s) > mlx5.MaxSegments*mlx5.SegmentBytes {
			return 0, fmt.Errorf("entry of more than %d segments: %w", mlx5.MaxSegments, mlx5.ErrArgument)
		}
		n += copy(b[n:], s)
	}
	c.Index, c.QPN, c.Segments = uint16(p.View.Reserved), p.View.QPN, uint8(n/mlx5.SegmentBytes)
	c.Put(b[:])
	blocks := uint64(c.Blocks())
	if p.View.Reserved+blocks-p.View.Completed > 1<<p.View.SQLog {
		return 0, ErrFull
	}
	at = p.View.Reserved
	mask := uint64(1)<<p.View.SQLog - 1
	for i := range blocks { // block by block: an entry may wrap around the ring's end
		store(p.View.SQ+((at+i)&mask)*mlx5.BlockBytes, b[i*mlx5.BlockBytes:][:mlx5.BlockBytes])
	}
	sys.Store32(p.View.Kept+4*(at&mask), uint32(blocks))
	p.View.Reserved += blocks
	p.lastBell = binary.LittleEndian.Uint64(b[:])
	if !p.NoBell {
		p.Ring()
	}
	return at, nil
}

// Ring publishes the posted entries: it writes the entries first, then the record, then the
// doorbell.
func (p *Poster) Ring() {
	if p.View.Flags&abi.NICNoDBR == 0 {
		sys.Store32(p.View.DBR+4, swap32(uint32(p.View.Reserved)&0xffff))
	}
	sys.Store64(p.View.UAR, p.lastBell)
	p.View.Published = p.View.Reserved
}

// store copies b to memory. It is no part of its callers because the compiler (Go 1.26) fails at
// copies of constant size to an address.
//
//go:noinline
func store(addr uint64, b []byte) { copy(sys.Bytes(addr, len(b)), b) }

func swap32(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.LittleEndian.Uint32(b[:])
}

func segment(s interface{ Put([]byte) }) []byte {
	b := make([]byte, mlx5.SegmentBytes)
	s.Put(b)
	return b
}

func local(s Span) []byte { return segment(mlx5.Data{Bytes: s.N, Key: s.Key, Addr: s.Addr}) }

func remote(s Span) []byte { return segment(mlx5.Remote{Addr: s.Addr, Key: s.Key}) }

// Write copies from to to, which is the peer's. flags are those of mlx5.Control.
func (p *Poster) Write(from, to Span, flags uint8) (uint64, error) {
	return p.Post(mlx5.Control{Opcode: mlx5.OpWrite, Flags: flags}, remote(to), local(from))
}

// WriteImm is Write, but consumes a receive entry of the peer, whose completion has imm.
func (p *Poster) WriteImm(from, to Span, imm uint32, flags uint8) (uint64, error) {
	return p.Post(mlx5.Control{Opcode: mlx5.OpWriteImm, Flags: flags, Imm: imm}, remote(to), local(from))
}

// WriteInline writes bytes that are part of the entry.
func (p *Poster) WriteInline(data []byte, to Span, flags uint8) (uint64, error) {
	b := make([]byte, mlx5.InlineSegments(len(data))*mlx5.SegmentBytes)
	mlx5.PutInline(b, data)
	return p.Post(mlx5.Control{Opcode: mlx5.OpWrite, Flags: flags}, remote(to), b)
}

// Read copies from, which is the peer's, to to.
func (p *Poster) Read(from, to Span, flags uint8) (uint64, error) {
	return p.Post(mlx5.Control{Opcode: mlx5.OpRead, Flags: flags}, remote(from), local(to))
}

// Atomic executes an atomic on the peer's word and stores the previous value in old.
func (p *Poster) Atomic(opcode uint8, a mlx5.Atomic, word, old Span, flags uint8) (uint64, error) {
	b := make([]byte, mlx5.AtomicSegments(opcode, a.Width)*mlx5.SegmentBytes)
	a.Put(b, opcode)
	c := mlx5.Control{Opcode: opcode, Flags: flags}
	if opcode == mlx5.OpMaskedAdd || opcode == mlx5.OpMaskedSwap {
		c.OpMod = mlx5.OpModMasked8
		if a.Width == 4 {
			c.OpMod = mlx5.OpModMasked4
		}
	}
	return p.Post(c, remote(word), b, local(old))
}

// Send sends parts of memory to the peer's next receive entry.
func (p *Poster) Send(imm *uint32, flags uint8, parts ...Span) (uint64, error) {
	c := mlx5.Control{Opcode: mlx5.OpSend, Flags: flags}
	if imm != nil {
		c.Opcode, c.Imm = mlx5.OpSendImm, *imm
	}
	var segments [][]byte
	for _, s := range parts {
		segments = append(segments, local(s))
	}
	return p.Post(c, segments...)
}

// Poll reads a completion, if there is one.
func (p *Poster) Poll() (c mlx5.CQE, ok bool) {
	v := &p.View
	if v.Flags&abi.NICCollapsed != 0 {
		return p.pollCollapsed()
	}
	at := v.CQ + (v.Polled&(1<<v.CQLog-1))*mlx5.CQEBytes
	if !mlx5.Ready(byte(sys.Load64(at+56)>>56), v.Polled, v.CQLog) {
		return c, false
	}
	c = mlx5.ParseCQE(sys.Bytes(at, mlx5.CQEBytes))
	v.Polled++
	sys.Store32(v.CQDBR, swap32(uint32(v.Polled)&0xffffff))
	p.finish(&c)
	return c, true
}

// pollCollapsed reads the single entry, whose counter shows how far the NIC is.
func (p *Poster) pollCollapsed() (c mlx5.CQE, ok bool) {
	v := &p.View
	last := sys.Load64(v.CQ + 56)
	var b [mlx5.CQEBytes]byte
	binary.LittleEndian.PutUint64(b[56:], last)
	c = mlx5.ParseCQE(b[:])
	if c.Counter == uint16(v.Completed)-1 || v.Completed == v.Reserved || uint16(v.Reserved)-c.Counter > uint16(v.Reserved-v.Completed) {
		return c, false
	}
	if c.Opcode == mlx5.CQEReqError {
		c = mlx5.ParseCQE(sys.Bytes(v.CQ, mlx5.CQEBytes))
	}
	p.finish(&c)
	return c, true
}

// finish counts the blocks that a completion reports as done: all up to the end of its entry.
func (p *Poster) finish(c *mlx5.CQE) {
	v := &p.View
	first := v.Completed + uint64(c.Counter-uint16(v.Completed))
	v.Completed = first + uint64(sys.Load32(v.Kept+4*(first&(1<<v.SQLog-1))))
	if c.Opcode == mlx5.CQEReqError {
		if v.Status == 0 {
			v.Status = uint64(c.Vendor)<<8 | uint64(c.Syndrome)
		}
		p.Errors = append(p.Errors, *c)
	}
}

// Until polls until all blocks before at are done, there is an error, or the timeout expires.
func (p *Poster) Until(at uint64, timeout time.Duration) error {
	end := time.Now().Add(timeout)
	for n := 0; p.View.Completed < at; n++ {
		if c, ok := p.Poll(); ok {
			if err := c.Err(); err != nil {
				return err
			}
			continue
		}
		if n%64 == 63 {
			thread.Yield()
			if time.Now().After(end) {
				return fmt.Errorf("%d of %d blocks are done after %v", p.View.Completed, at, timeout)
			}
		}
	}
	return nil
}

// Quiet posts a NOP that completes after all earlier entries, and waits for it.
func (p *Poster) Quiet(timeout time.Duration) error {
	at, err := p.Post(mlx5.Control{Opcode: mlx5.OpNop, Flags: mlx5.FlagSignalled})
	if err != nil {
		return err
	}
	if p.NoBell {
		p.Ring()
	}
	return p.Until(at+1, timeout)
}
