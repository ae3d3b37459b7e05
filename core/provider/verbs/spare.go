// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// Callers need not register local memory, but NICs need registered memory. A short op copies its
// bytes to or from a spare. A longer op registers its memory until it ends. That costs system
// calls, the pinning of each page and a goroutine. So callers should register memory that they use
// again. doc.go says why such registrations are not cached.
const (
	maxTransient = 16 // registrations of one op
	maxLeasing   = 4  // ops that register at a time; each occupies a thread
)

// spareKinds are the sizes and numbers of spares, short ones first: 4 MiB in total.
// BenchmarkUnregistered measures what they save.
var spareKinds = [...]struct {
	bytes uint64
	count int32
}{{4 << 10, 256}, {64 << 10, 16}, {maxSpare, 8}}

// maxSpare is the longest op that is copied. For 256 KiB, the kernel takes as long to pin and unpin
// as a copy does (5.6 us and 5.7 us on an AMD EPYC, Linux 6.18, as a registered buffer of
// io_uring). libibverbs and the NIC take additional time.
const maxSpare = 256 << 10

// spares are a fabric's registered buffers for ops whose own memory is not registered.
type spares [len(spareKinds)]spareKind

// A spareKind is all spares of one size.
type spareKind struct {
	bytes uint64
	once  sync.Once
	made  atomic.Bool // true once reg is set
	mem   []byte
	reg   *registration

	mu   sync.Mutex
	free []int32
}

// A spare is a buffer in use by an op. The zero value is no spare.
type spare struct {
	of *spareKind
	i  int32
}

func (s spare) addr() uint64 { return s.of.reg.base + uint64(s.i)*s.of.bytes }

func (s spare) put() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.free = append(s.of.free, s.i)
}

// open registers the spares of a kind with all devices, when they are first needed. If that fails,
// ops register their own memory.
func (s *spares) open(all *domains, kind int) {
	k, want := &s[kind], spareKinds[kind]
	k.once.Do(func() {
		mem, err := sys.Alloc(int(want.bytes) * int(want.count))
		if err != nil {
			logged(all.opts.Log, "make spares", err)
			return
		}
		g := registerAll(all, fabric.Buffer{Addr: sys.AddrOf(mem), Len: uint64(len(mem))}, 0)
		if g.err != nil {
			logged(all.opts.Log, "make spares", errors.Join(g.err, sys.Free(mem)))
			return
		}
		k.bytes, k.mem, k.reg = want.bytes, mem, g
		for i := range want.count {
			k.free = append(k.free, i)
		}
		k.made.Store(true)
	})
}

// close frees the memory. No NIC may use it any more.
func (s *spares) close() error {
	var errs []error
	for i := range s {
		k := &s[i]
		if k.mem == nil {
			continue
		}
		err := k.reg.Close()
		if err == nil { // otherwise the device may still use it
			err = sys.Free(k.mem)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// take returns a spare of a kind, or the zero value.
func (s *spares) take(kind int) spare {
	k := &s[kind]
	if !k.made.Load() {
		return spare{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.free)
	if n == 0 {
		return spare{}
	}
	i := k.free[n-1]
	k.free = k.free[:n-1]
	return spare{k, i}
}

// kindFor returns the shortest kind with room for n bytes, or -1.
func kindFor(n uint64) int {
	for i := range spareKinds {
		if n <= spareKinds[i].bytes {
			return i
		}
	}
	return -1
}
