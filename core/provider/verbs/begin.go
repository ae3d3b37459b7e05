// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"syscall"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/staging"
	"mori/native/verbs"
)

// An outcome is what became of an op.
type outcome int

const (
	begun    outcome = iota // it is on its way, or has ended
	byStream                // the NIC cannot
	notYet                  // it takes more than a look to know: begin again, with wait
)

// errNotYet: what is needed is not known yet.
var errNotYet = errors.New("not known yet")

// errStream is why an op goes by TCP; the text says more.
var errStream = errors.New("no NIC can")

// begin sets an op on its way. Without wait it waits for nobody.
func (dp *dataPath) begin(f *flight, key fabric.RegionKey, wait bool) outcome {
	if !dp.isReady() && (!wait || !dp.awaitRails()) {
		return dp.undecided(f, wait)
	}
	l := dp.holder.Find(key)
	if l == nil {
		return dp.undecided(f, true)
	}
	if !l.Await(wait, dp.Stopped) {
		return dp.undecided(f, wait)
	}
	if l.Refused != 0 {
		dp.refused(l)
		return byStream // the target reports the cause, or has another way
	}
	if err := grant.Check(f.op, l.Key.ID, l.Region.access, l.Region.size); err != nil {
		dp.end(f, err)
		return begun
	}
	if !l.Use.Enter() {
		dp.end(f, local.OpFault(fabric.ErrNoKey, "region %d was closed by its owner", l.Key.ID))
		return begun
	}
	f.grant = l
	err := dp.list(f, wait)
	if err == errUnregistered {
		err = dp.listElsewhere(f, wait)
	}
	switch {
	case err == nil:
		dp.post(f)
		return begun
	case errors.Is(err, errNotYet):
		dp.letGoOf(f)
		return notYet
	case errors.Is(err, errStream):
		dp.slow(err)
		dp.letGoOf(f)
		return byStream
	}
	dp.end(f, err)
	return begun
}

// undecided is what becomes of an op that something is not known for: with wait, it was waited for,
// and the connection has ended.
func (dp *dataPath) undecided(f *flight, wait bool) outcome {
	if !wait {
		return notYet
	}
	dp.end(f, dp.Cause())
	return begun
}

func (dp *dataPath) isReady() bool {
	select {
	case <-dp.ready:
		return true
	default:
		return false
	}
}

// Long ops are spread over all queue pairs, in runs of at least stripeMin.
const stripeMin = 128 << 10

// longest is how long the runs of an op of so many bytes may be.
func (dp *dataPath) longest(total uint64) uint64 {
	if n := uint64(len(dp.pairs)); n > 1 && total >= 2*stripeMin {
		return min(dp.maxRun, max(stripeMin, (total+n-1)/n))
	}
	return dp.maxRun
}

// list writes down the runs of an op.
func (dp *dataPath) list(f *flight, wait bool) error {
	total := f.op.Len()
	most := dp.longest(total)
	onDevice := staging.OnDevice(f.op)
	if f.op.Kind == fabric.OpWrite && total <= dp.maxInline && !onDevice {
		return dp.listCopied(f, f.room(dp.maxInline), nil)
	}
	if onDevice {
		if err := dp.holdDevice(f, wait); err != nil {
			return err
		}
	}
	p := &f.grant.Region
	var reg *registration
	for walk := util.NewWalk(f.op); ; {
		at, off, n, ok := walk.Next()
		if !ok {
			return nil
		}
		for n > 0 {
			if reg == nil || !reg.has(at, n) {
				var err error
				if reg, err = dp.find(f, at, n, wait); err != nil {
					return err
				}
			}
			k := min(n, most, p.chunk-off%p.chunk, reg.chunk-(at-reg.base)%reg.chunk)
			f.add(run{at, p.base + off, k, reg}, p, most)
			at, off, n = at+k, off+k, n-k
		}
	}
}

// add appends a run, or lengthens the last one, if nothing is between them.
func (f *flight) add(r run, p *place, most uint64) {
	if n := len(f.runs); n > 0 {
		last := &f.runs[n-1]
		if last.local+last.n == r.local && last.remote+last.n == r.remote && last.reg == r.reg && last.n+r.n <= most &&
			(last.remote-p.base)/p.chunk == (r.remote-p.base)/p.chunk && (r.reg == nil || r.reg.piece(last.local) == r.reg.piece(r.local)) {
			last.n += r.n
			return
		}
	}
	f.runs = append(f.runs, r)
}

func (g *registration) has(at, n uint64) bool {
	return at >= g.base && at-g.base <= g.size && n <= g.size-(at-g.base)
}

// piece is which of a registration's pieces has the byte at an address.
func (g *registration) piece(at uint64) uint64 { return (at - g.base) / g.chunk }

// find is the registration that has n bytes at an address; the flight holds it.
func (dp *dataPath) find(f *flight, at, n uint64, wait bool) (*registration, error) {
	for i := range f.held {
		if g := f.held[i].reg; g.has(at, n) {
			return g, dp.usable(f, g)
		}
	}
	mr := dp.domain.table.Host(at, n)
	if mr == nil {
		if f.leasing {
			return dp.lease(f, at, n)
		}
		return nil, errUnregistered
	}
	return dp.hold(f, mr, wait)
}

// hold keeps a region and its registration for the flight, which takes mr over.
func (dp *dataPath) hold(f *flight, mr *regions.MR, wait bool) (*registration, error) {
	g := dp.domain.registrationOf(mr, wait)
	if g == nil {
		mr.Release()
		if !wait {
			return nil, errNotYet
		}
		return nil, fmt.Errorf("%w: region %d is being closed", errStream, mr.Key().ID)
	}
	dp.pending.Lock()
	f.held = append(f.held, hold{mr, g})
	dp.pending.Unlock()
	return g, dp.usable(f, g)
}

func (dp *dataPath) usable(f *flight, g *registration) error {
	switch {
	case g.err != nil:
		return fmt.Errorf("%w: %w", errStream, g.err)
	case !dp.isKnown(g):
		return fmt.Errorf("%w: a device of %s was removed", errStream, dp.rails[0])
	case g.readOnly && f.op.Kind == fabric.OpRead:
		return local.OpFault(fabric.Errno(syscall.EFAULT), "read into %d bytes of local memory at %#x, which is read-only", g.size, g.base)
	}
	return nil
}

// isKnown reports whether the devices of all rails have a registration: one that is dead has not
// what was registered since.
func (dp *dataPath) isKnown(g *registration) bool {
	for _, r := range dp.rails {
		if len(g.keys[r.nicAt]) == 0 {
			return false
		}
	}
	return true
}

// holdDevice holds the regions of the op's segments of device memory.
func (dp *dataPath) holdDevice(f *flight, wait bool) error {
	var last fabric.MRDesc
	for i := -1; i < len(f.op.More); i++ {
		s := &f.op.Seg
		if i >= 0 {
			s = &f.op.More[i]
		}
		if s.MR == 0 || s.MR == last {
			continue
		}
		last = s.MR
		mr := dp.domain.table.Device(s.MR)
		if mr == nil {
			return local.OpFault(fabric.ErrNoMR, "descriptor %d of a local segment of %d bytes", s.MR, s.Len)
		}
		if _, err := dp.hold(f, mr, wait); err != nil {
			return err
		}
	}
	return nil
}

// letGoOf releases what a begin held that came to nothing.
func (dp *dataPath) letGoOf(f *flight) {
	f.runs = f.runs[:0]
	f.release()
}

// post makes work requests of the runs and gives them to queue pairs: all of them if the op is
// long, else the next one.
func (dp *dataPath) post(f *flight) {
	pairs := dp.pairs
	if total := f.op.Len(); len(pairs) > 1 && total < 2*stripeMin {
		i := int(dp.next.Add(1)) % len(pairs)
		pairs = pairs[i : i+1]
	}
	if f.hasNotice() && creditAll(pairs) {
		f.announced = true
	}
	parts := dp.parts(f, pairs)
	f.left.Store(int32(len(f.wrs)))
	for _, p := range parts { // f may be over, and another op, after the last
		p.pair.add(p)
	}
}

// hasNotice reports whether the op has remote data.
func (f *flight) hasNotice() bool {
	return f.op.Kind == fabric.OpWrite && f.op.Flags&fabric.OpRemoteData != 0
}

// A part is the work requests of an op that one queue pair carries out: wrs[from:to] of the flight.
type part struct {
	pair     *pair
	f        *flight
	from, to int
}

// parts cuts the runs among pairs, by bytes.
func (dp *dataPath) parts(f *flight, pairs []*pair) []part {
	share := (f.op.Len() + uint64(len(pairs)) - 1) / uint64(len(pairs))
	parts := f.parts[:0]
	number := uint32(0)
	if f.announced {
		number = dp.numbers.Add(1)
	}
	rest := f.runs
	for i, p := range pairs {
		n, bytes := 0, uint64(0)
		for n < len(rest) && (bytes < share || i == len(pairs)-1) {
			bytes += rest[n].n
			n++
		}
		if n == 0 {
			if f.announced {
				p.credits.Add(1)
			}
			continue
		}
		from := len(f.wrs)
		p.build(f, rest[:n])
		if f.announced {
			f.notice(number)
		}
		parts = append(parts, part{p, f, from, len(f.wrs)})
		rest = rest[n:]
	}
	if f.announced {
		for _, p := range parts {
			f.wrs[p.to-1].Imm |= uint32(len(parts)) << 24
		}
	}
	f.parts = parts
	return parts
}

// build appends the work requests for runs: one for each remote run, which gathers from or scatters
// to as many local ones as it may.
func (p *pair) build(f *flight, runs []run) {
	at := &f.grant.Region
	op, flags, most := verbs.OpWrite, uint8(0), p.maxSGE
	if f.op.Kind == fabric.OpRead {
		op, most = verbs.OpRead, p.maxSGERead
	}
	if runs[0].reg == nil {
		flags = verbs.Inline
	}
	var end, bytes uint64 // of the last work request: where it ends at the target, and its length
	for i := range runs {
		r := &runs[i]
		sge := verbs.SGE{Addr: r.local, Len: uint32(r.n)}
		if r.reg != nil {
			sge.LKey = r.reg.keys[p.rail.nicAt][r.reg.piece(r.local)].Local
		}
		f.sges = append(f.sges, sge)
		if i > 0 && r.remote == end && int(f.wrs[len(f.wrs)-1].Count) < most && bytes+r.n <= p.rail.path.maxRun && (r.remote-at.base)%at.chunk != 0 {
			f.wrs[len(f.wrs)-1].Count++
			end, bytes = end+r.n, bytes+r.n
			continue
		}
		f.wrs = append(f.wrs, verbs.SendWR{
			Op: op, Flags: flags, RemoteAddr: r.remote, RKey: at.keys[p.rail.index][(r.remote-at.base)/at.chunk],
			First: uint32(len(f.sges) - 1), Count: 1,
		})
		end, bytes = r.remote+r.n, r.n
	}
}
