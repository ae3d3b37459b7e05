// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/staging"
	"mori/native/verbs"
)

// Local memory need not be registered. NICs want it to be: an op that is not long has its bytes
// copied from or to a spare, a longer one has its memory registered for as long as it takes. That
// costs system calls, the pinning of each page and a goroutine, so callers who come again register.
// See doc.go for why such registrations are not kept.
const (
	maxTransient = 16 // registrations of one op
	maxLeasing   = 4  // such registrations at a time: each has a thread meanwhile
)

// spareKinds are how long spares are and how many there are of each, short ones first: 4 MiB in
// all. BenchmarkUnregistered has what they save.
var spareKinds = [...]struct {
	bytes uint64
	count int32
}{{4 << 10, 256}, {64 << 10, 16}, {maxSpare, 8}}

// maxSpare is the longest op that is copied. To pin 256 KiB and let go of them takes the kernel as
// long as a copy does (5.6 us and 5.7 us on an AMD EPYC, Linux 6.18, as a registered buffer of
// io_uring), and libibverbs and the NIC come on top of that.
const maxSpare = 256 << 10

// errUnregistered: some local memory of an op is of no region.
var errUnregistered = errors.New("local memory is not in a registered region")

// spares are registered memory of a fabric for ops whose own is not.
type spares [len(spareKinds)]spareKind

// A spareKind is all spares of one length.
type spareKind struct {
	bytes uint64
	once  sync.Once
	made  atomic.Bool // and reg is set
	mem   []byte
	reg   *registration

	mu   sync.Mutex
	free []int32
}

// A spare is what an op has of them; the zero value is none.
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

// open registers the spares of a kind with all devices, when they are first needed. Without them,
// such ops are as long ones.
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

// close gives the memory back. No NIC uses it any more.
func (s *spares) close() error {
	var errs []error
	for i := range s {
		k := &s[i]
		if k.mem == nil {
			continue
		}
		err := k.reg.Close()
		if err == nil { // else the device may still know it
			err = sys.Free(k.mem)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// take gives the flight a spare of a kind, if there is one.
func (s *spares) take(f *flight, kind int) bool {
	k := &s[kind]
	if !k.made.Load() {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.free)
	if n == 0 {
		return false
	}
	f.spare, k.free = spare{k, k.free[n-1]}, k.free[:n-1]
	return true
}

// kindFor is the shortest that has room for n bytes; -1: none.
func kindFor(n uint64) int {
	for i := range spareKinds {
		if n <= spareKinds[i].bytes {
			return i
		}
	}
	return -1
}

// listElsewhere is list for an op with local memory that is not registered.
func (dp *dataPath) listElsewhere(f *flight, wait bool) error {
	f.runs = f.runs[:0]
	if staging.OnDevice(f.op) {
		return fmt.Errorf("%w: host memory beside device memory is not in a registered region", errStream)
	}
	if kind := kindFor(f.op.Len()); kind >= 0 {
		if wait {
			dp.all.spares.open(dp.all, kind)
		}
		if dp.all.spares.take(f, kind) {
			return dp.listCopied(f, f.spare.addr(), f.spare.of.reg)
		}
	}
	if !wait {
		return errNotYet
	}
	select {
	case dp.all.leasing <- struct{}{}:
	case <-dp.Stopped:
		return fmt.Errorf("%w: the connection has ended", errStream)
	}
	defer func() { <-dp.all.leasing }()
	f.leasing = true
	return dp.list(f, true)
}

// listCopied lists an op by other memory at an address, of a registration or to be taken inline,
// where the bytes of a write are copied first: memory that cannot be read is found out by this, and
// is the op's end.
func (dp *dataPath) listCopied(f *flight, at uint64, reg *registration) error {
	p, most := &f.grant.Region, dp.longest(f.op.Len())
	for walk, pos := util.NewWalk(f.op), uint64(0); ; {
		local, off, n, ok := walk.Next()
		if !ok {
			return nil
		}
		if f.op.Kind == fabric.OpWrite {
			if err := sys.Move(at+pos, local, n); err != nil {
				return unreachable(local, n, err)
			}
		}
		for n > 0 {
			k := min(n, most, p.chunk-off%p.chunk)
			if reg != nil {
				k = min(k, reg.chunk-(at+pos-reg.base)%reg.chunk)
			}
			f.add(run{at + pos, p.base + off, k, reg}, p, most)
			pos, off, n = pos+k, off+k, n-k
		}
	}
}

// deliver copies what was read into the spare to where it belongs.
func (dp *dataPath) deliver(f *flight) error {
	at := f.spare.addr()
	for walk := util.NewWalk(f.op); ; {
		local, _, n, ok := walk.Next()
		if !ok {
			return nil
		}
		if err := sys.Move(local, at, n); err != nil {
			return unreachable(local, n, err)
		}
		at += n
	}
}

// unreachable is the end of an op whose local memory is not there, or may not be written.
func unreachable(at, n uint64, err error) error {
	return local.OpFault(fabric.ErrnoOf(err), "%d bytes of local memory at %#x: %v", n, at, err)
}

// lease registers n bytes for the flight alone.
func (dp *dataPath) lease(f *flight, at, n uint64) (*registration, error) {
	if f.leases++; f.leases > maxTransient {
		return nil, fmt.Errorf("%w: more than %d pieces are not in a registered region", errStream, maxTransient)
	}
	g := registerAll(dp.all, fabric.Buffer{Addr: at, Len: n}, 0)
	if g.err != nil {
		return nil, fmt.Errorf("%w: %w", errStream, g.err)
	}
	dp.pending.Lock()
	f.held = append(f.held, hold{reg: g})
	dp.pending.Unlock()
	return g, dp.usable(f, g)
}

// registerAll shows memory to all devices.
func registerAll(all *domains, buf fabric.Buffer, rights verbs.Access) *registration {
	g := &registration{base: buf.Addr, size: buf.Len, chunk: buf.Len}
	if g.gpu, g.err = gpuOf(buf, all.settings.DMABuf); g.err != nil {
		return g
	}
	for _, c := range all.nics {
		g.chunk = min(g.chunk, pieceOf(c.attr.MaxMRSize))
	}
	g.chunk = max(g.chunk, 1)
	if most := maxKeys(len(all.nics)); pieces(g.size, g.chunk) > most {
		g.err = fmt.Errorf("%d bytes are more than %d registrations of %d: %w", g.size, most, g.chunk, fabric.ErrNotSupported)
		return g
	}
	for _, c := range all.nics {
		if c.dead.Load() { // no connection goes by it any more
			g.keys = append(g.keys, nil)
			continue
		}
		if g.err = g.show(c, rights); g.err != nil {
			g.err = errors.Join(g.explain(g.err, c), g.Close())
			return g
		}
	}
	g.gpu.logChoice(all.opts.Log, g.size)
	return g
}
