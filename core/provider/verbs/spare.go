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
	"mori/core/provider/internal/stream"
	"mori/native/verbs"
)

// Local memory need not be registered. NICs want it to be: a short op has its bytes copied from or to a spare, a longer one has its memory
// registered for as long as it takes. That costs system calls and the pinning of each page, so callers who come again register.
const (
	spareBytes   = 4 << 10
	spareCount   = 256
	maxTransient = 16 // registrations of one op
)

// errUnregistered: some local memory of an op is of no region.
var errUnregistered = errors.New("local memory is of no registered region")

// spares are registered memory of a fabric for ops whose own is not.
type spares struct {
	once sync.Once
	made atomic.Bool // and reg is set
	mem  []byte
	reg  *registration

	mu   sync.Mutex
	free []int32
}

// open registers the memory with all devices, when it is first needed. Without it, short ops are as long ones.
func (s *spares) open(all *domains) {
	s.once.Do(func() {
		mem, err := sys.Alloc(spareBytes * spareCount)
		if err != nil {
			logged(all.opts.Log, "make spares", err)
			return
		}
		g := registerAll(all, fabric.Buffer{Addr: sys.AddrOf(mem), Len: uint64(len(mem))}, 0)
		if g.err != nil {
			logged(all.opts.Log, "make spares", errors.Join(g.err, sys.Free(mem)))
			return
		}
		s.mem, s.reg = mem, g
		for i := range int32(spareCount) {
			s.free = append(s.free, i)
		}
		s.made.Store(true)
	})
}

// close gives the memory back. No NIC uses it any more.
func (s *spares) close() error {
	if s.mem == nil {
		return nil
	}
	if err := s.reg.close(); err != nil {
		return err
	}
	return sys.Free(s.mem)
}

// take gives the flight a spare, if there is one.
func (s *spares) take(f *flight) bool {
	if !s.made.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.free)
	if n == 0 {
		return false
	}
	f.spare, s.free = s.free[n-1], s.free[:n-1]
	return true
}

func (s *spares) put(i int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, i)
}

// listElsewhere is list for an op with local memory that is not registered.
func (m *mover) listElsewhere(f *flight, wait bool) error {
	f.runs = f.runs[:0]
	if stream.OnDevice(f.op) {
		return fmt.Errorf("%w: host memory beside device memory is of no region", errStream)
	}
	short := f.op.Len() <= spareBytes
	if short && wait {
		m.all.spares.open(m.all)
	}
	if short && m.all.spares.take(f) {
		return m.listCopied(f, m.all.spares.reg.base+uint64(f.spare)*spareBytes, m.all.spares.reg)
	}
	if !wait {
		return errNotYet
	}
	f.leasing = true
	return m.list(f, true)
}

// listCopied lists an op by other memory at an address, of a registration or to be taken inline, where the bytes of a write are copied first: memory
// that cannot be read is found out by this, and is the op's end.
func (m *mover) listCopied(f *flight, at uint64, reg *registration) error {
	p := &f.loan.Place
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
			k := min(n, p.chunk-off%p.chunk)
			f.add(run{at + pos, p.base + off, k, reg}, p, spareBytes)
			pos, off, n = pos+k, off+k, n-k
		}
	}
}

// deliver copies what was read into the spare to where it belongs.
func (m *mover) deliver(f *flight) error {
	at := m.all.spares.reg.base + uint64(f.spare)*spareBytes
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
func (m *mover) lease(f *flight, at, n uint64) (*registration, error) {
	if f.leases++; f.leases > maxTransient {
		return nil, fmt.Errorf("%w: more than %d pieces are of no registered region", errStream, maxTransient)
	}
	g := registerAll(m.all, fabric.Buffer{Addr: at, Len: n}, 0)
	if g.err != nil {
		return nil, fmt.Errorf("%w: %w", errStream, g.err)
	}
	m.mu.Lock()
	f.held = append(f.held, hold{reg: g})
	m.mu.Unlock()
	return g, m.usable(f, g)
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
		if g.err = g.show(c, rights); g.err != nil {
			g.err = errors.Join(g.explain(g.err, c), g.close())
			return g
		}
	}
	g.gpu.told(all.opts.Log, g.size)
	return g
}
