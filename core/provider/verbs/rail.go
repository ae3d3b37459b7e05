// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
	"mori/core/provider/verbs/nics"
	"mori/native/verbs"
)

// A rail is this side of a connection on one NIC: a completion queue, which cannot overrun, and the
// queue pairs.
type rail struct {
	path  *dataPath
	nic   *nic
	nicAt int // index in all.nics
	index int // index in the data path's rails
	gid   verbs.GIDEntry

	channel verbs.Channel
	cq      verbs.CQ
	entries int // of cq
	pairs   []*pair
	wire    *wire // for messages; on the first rail only, and may be nil
	psn     uint32

	file    *os.File // a duplicate of the channel's descriptor
	raw     syscall.RawConn
	next    func(uintptr) bool // takes an event of the channel; made once, so that sleep allocates nothing
	nextErr error              // of next
	polling sync.WaitGroup
}

// String is "mlx5_0:1".
func (r *rail) String() string { return fmt.Sprintf("%s:%d", r.nic.name, r.nic.port) }

// newRail makes a rail with some queue pairs, not connected. It adds one for messages if wanted and
// if the device has room. offer is the peer's side, or nil if it is not known yet.
func newRail(dp *dataPath, nicAt, qps int, messages bool, offer *railDesc) (r *rail, err error) {
	s, n := &dp.all.settings, dp.all.nics[nicAt]
	var peer *[16]byte
	if offer != nil {
		peer = &offer.gid
	}
	made := &rail{path: dp, nic: n, nicAt: nicAt, psn: randomPSN()}
	r = made
	defer func() {
		if err != nil { // r is nil by now
			err = errors.Join(fmt.Errorf("make a rail on %s: %w", made, err), made.close())
		}
	}()
	if r.gid, err = n.address(peer); err != nil {
		return nil, err
	}
	if r.channel, err = n.ctx.NewChannel(); err != nil {
		return nil, err
	}
	sends, recvs, entries, err := s.depths(&n.attr, qps)
	if err != nil {
		return nil, err
	}
	wireSends, wireRecvs, more := wireDepths(&n.attr, qps*(sends+recvs+1))
	if messages = messages && more > 0; messages {
		entries = max(entries, more)
	}
	r.entries = entries
	if r.cq, err = n.ctx.NewCQ(entries, r.channel, 0); err != nil {
		return nil, err
	}
	for range qps {
		p, err := newPair(r, s, sends, recvs, noticeLen)
		if err != nil {
			return nil, err
		}
		r.pairs = append(r.pairs, p)
	}
	if messages {
		if r.wire, err = newWire(r, s, wireSends, wireRecvs); err != nil {
			dp.log.Info("verbs: messages use TCP", "peer", dp.port.Peer(), "error", err)
			r.wire = nil
		}
	}
	fd, err := unix.FcntlInt(uintptr(r.channel.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	r.file = os.NewFile(uintptr(fd), "completions")
	if r.raw, err = r.file.SyscallConn(); err != nil {
		return nil, err
	}
	r.next = func(uintptr) bool {
		_, r.nextErr = r.channel.Next()
		return !errors.Is(r.nextErr, syscall.EAGAIN)
	}
	n.join(r)
	return r, nil
}

// desc returns the description of the rail for the peer.
func (r *rail) desc() railDesc {
	d := railDesc{
		gid: r.gid.GID, lid: r.nic.link.LID, link: r.nic.link.LinkLayer, mtu: uint16(r.ownMTU()),
		readDepth: uint8(max(1, min(r.nic.attr.MaxQPRdAtom, maxReads))), psn: r.psn,
	}
	d.index = uint8(min(r.nic.index, 255))
	for _, p := range r.pairs {
		d.qps = append(d.qps, p.num)
	}
	d.recvs = uint16(r.pairs[0].recvs.count())
	if w := r.wire; w != nil {
		d.wire, d.wireRecvs, d.wireBytes = w.pair.num, uint16(w.pair.recvs.count()), wireBytes
	}
	return d
}

// maxReads is the most pending reads of a queue pair at its target, if both devices support that
// many.
const maxReads = 16

func (r *rail) ownMTU() int {
	if want := r.path.all.settings.MTU; want > 0 {
		return min(want, r.nic.link.MTU)
	}
	return r.nic.link.MTU
}

// If the peer has no receive posted, a NIC waits for minRNRTimer, and retries without a limit.
const (
	minRNRTimer = 12 // 0.64 ms
	rnrForever  = 7
	hopLimit    = 64
)

// connect connects the queue pairs to the peer's, in order, and starts the poller.
func (r *rail) connect(peer *railDesc) error {
	if len(peer.qps) < len(r.pairs) {
		return fmt.Errorf("peer has %d queue pairs for %d: %w", len(peer.qps), len(r.pairs), fabric.ErrProtocol)
	}
	for i, p := range r.pairs {
		if err := p.connect(peer, peer.qps[i], peer.recvs, verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessLocalWrite); err != nil {
			return err
		}
	}
	if w := r.wire; w != nil && peer.wire == 0 {
		logged(r.path.log, "close the queue pair of messages, which the peer does not use", errors.Join(w.pair.close(), w.close()))
		r.wire = nil
	} else if w != nil {
		w.most = min(wireBytes, uint64(peer.wireBytes))
		if err := w.pair.connect(peer, peer.wire, peer.wireRecvs, verbs.AccessLocalWrite); err != nil {
			return err
		}
	}
	r.polling.Add(1)
	go r.poll()
	return nil
}

// connect connects a queue pair to the peer's queue pair dest, which has recvs receives.
func (p *pair) connect(peer *railDesc, dest uint32, recvs uint16, rights verbs.Access) error {
	r := p.rail
	s, n := &r.path.all.settings, r.nic
	if err := p.qp.Init(n.port, rights); err != nil {
		return err
	}
	for at := range p.recvs.count() {
		if err := p.recvs.post(p.qp, at); err != nil {
			return err
		}
	}
	p.most = int32(recvs)
	p.credits.Store(p.most)
	if err := p.qp.RTR(verbs.RTR{
		MTU: min(r.ownMTU(), int(peer.mtu)), DestQP: dest, PSN: peer.psn, Port: n.port, GIDIndex: r.gid.Index, GID: peer.gid, LID: peer.lid,
		Global: n.link.LinkLayer == verbs.LinkEthernet || n.link.GRHRequired, SL: s.SL, TrafficClass: s.TrafficClass, HopLimit: hopLimit,
		MaxDestRdAtomic: uint8(max(1, min(n.attr.MaxQPRdAtom, maxReads))), MinRNRTimer: minRNRTimer,
	}); err != nil {
		return fmt.Errorf("towards %s: %w", nics.GIDText(peer.gid), err)
	}
	return p.qp.RTS(verbs.RTS{
		PSN: r.psn, Timeout: s.Timeout, Retries: s.Retries, RNRRetries: rnrForever,
		MaxRdAtomic: uint8(max(1, min(n.attr.MaxQPInitRdAtom, int(peer.readDepth), maxReads))),
	})
}

// shrink closes the queue pairs after the first n, which the peer does not want. No pair is
// connected yet.
func (r *rail) shrink(n int) {
	if n >= len(r.pairs) {
		return
	}
	for _, p := range r.pairs[n:] {
		logged(r.path.log, "close a queue pair that the peer does not use", p.close())
	}
	r.pairs = r.pairs[:n]
}

// fail ends the connection. Without this rail, it is unknown which of its work was done.
func (r *rail) fail(err error) {
	if !r.path.ops.IsStopped() {
		r.path.port.Fail(err)
	}
}

// While work is pending, the poller polls for spinFor after the last completion, or for pollFor
// with Settings.Polling, and then sleeps on the channel. Both are chosen, not measured on a
// hardware NIC. A sleep costs an interrupt and the wake-up of a thread.
const (
	spinFor   = 30 * time.Microsecond
	pollFor   = time.Millisecond
	pollBatch = 64
)

// poll handles completions until the rail closes.
func (r *rail) poll() {
	defer r.polling.Done()
	wcs, ended := make([]verbs.WC, pollBatch), make([]share, 0, pollBatch)
	last := time.Now()
	armed, awake, late := false, spinFor, 0
	if r.path.all.settings.Polling {
		awake = pollFor
	}
	for {
		n, err := r.cq.Poll(wcs)
		if err != nil {
			r.fail(fmt.Errorf("poll the completion queue of %s: %w: %w", r, err, fabric.ErrConnReset))
			return
		}
		gone := r.path.rails.isGone()
		if n > 0 && (!gone || late < r.entries) { // handles what came before the end, but no more than fits the queue
			ended = r.take(wcs[:n], ended[:0])
			last, armed = time.Now(), false
			if gone {
				late += n
			}
			continue
		}
		if gone {
			return
		}
		if time.Since(last) < awake && !r.idle() {
			runtime.Gosched()
			continue
		}
		if !armed {
			armed = true
			if err := r.cq.Arm(); err != nil {
				r.fail(fmt.Errorf("arm the completion queue of %s: %w: %w", r, err, fabric.ErrConnReset))
				return
			}
			continue // poll again: completions before Arm are not reported
		}
		if !r.sleep() && !r.path.rails.isGone() {
			return
		}
		armed = false
	}
}

// sleep returns true when the channel has reported a completion, and false when the rail closes.
func (r *rail) sleep() bool {
	if r.raw.Read(r.next) != nil {
		return false
	}
	if r.nextErr != nil {
		r.fail(fmt.Errorf("wait for completions of %s: %w: %w", r, r.nextErr, fabric.ErrConnReset))
	}
	return r.nextErr == nil
}

// take ends completed work. ended is scratch memory.
func (r *rail) take(wcs []verbs.WC, ended []share) []share {
	for i := range wcs {
		p := r.pairOf(wcs[i].QPNum)
		if p == nil {
			r.fail(fmt.Errorf("completion on %s for unknown queue pair %d: %w", r, wcs[i].QPNum, fabric.ErrProtocol))
			continue
		}
		var err error
		switch {
		case wcs[i].ID&recvBit == 0:
			ended, err = p.completed(&wcs[i], ended)
		case wcs[i].Status == verbs.StatusSuccess:
			err = p.arrived(&wcs[i])
		case wcs[i].Status != verbs.StatusFlushed:
			err = p.fault(&wcs[i])
		default:
			err = p.flushed()
		}
		if err != nil {
			r.fail(err)
		}
	}
	for i := range ended {
		ended[i].of.ended(ended[i].n)
		ended[i].of = nil
	}
	if r.wire != nil {
		r.wire.settle()
	}
	return ended
}

func (r *rail) pairOf(num uint32) *pair {
	for _, p := range r.pairs {
		if p.num == num {
			return p
		}
	}
	if r.wire != nil && r.wire.pair.num == num {
		return r.wire.pair
	}
	return nil
}

// all returns all queue pairs, including the one for messages.
func (r *rail) all() []*pair {
	if r.wire == nil {
		return r.pairs
	}
	return append(slices.Clone(r.pairs), r.wire.pair)
}

func (r *rail) idle() bool {
	for _, p := range r.pairs {
		if !p.idle() {
			return false
		}
	}
	return true
}

// shut ends all work. The NIC flushes what was posted, and the rest ends now.
func (r *rail) shut(cause error) {
	for _, p := range r.all() {
		for _, w := range p.shut(cause) {
			w.fail(cause)
		}
	}
}

// close frees the rail. Once it has returned, the NIC accesses no memory for the rail. close ends
// the NIC's unfinished work with the cause. The poller handles the completions before the queue
// pairs are destroyed, which discards them.
func (r *rail) close() error {
	r.nic.leave(r)
	var errs []error
	if r.file != nil {
		errs = append(errs, r.file.Close()) // ends the poller's sleep
	}
	r.polling.Wait()
	for _, p := range r.all() {
		errs = append(errs, p.close())
	}
	for _, p := range r.all() {
		for _, s := range p.abandon() {
			s.of.failed(r.path.ops.Cause())
			s.of.ended(s.n)
		}
	}
	if r.wire != nil {
		errs = append(errs, r.wire.close())
	}
	if r.cq != 0 {
		errs = append(errs, r.cq.Close())
	}
	if r.channel != 0 {
		errs = append(errs, r.channel.Close())
	}
	return errors.Join(errs...)
}
