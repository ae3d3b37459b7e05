// SPDX-License-Identifier: MIT

package verbs

import (
	"encoding/binary"
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/native/verbs"
)

// The remote data of a write follows its bytes, as a send with immediate data on every queue pair
// that carried some of them. When a receive completes, the earlier writes of its queue pair are in
// memory. Once all sends of an op have arrived, the target notifies its program.
//
//	immediate   number of the op in the low 24 bits, how many sends in the high 8
//	payload     Op.Data u64, Op.Len u64, ticket of the grant of the region u64, big endian
//
// The ticket proves that the sender has shown the region's key.
//
// A send takes a credit, so that a receive is posted for it. The target returns credits after
// notifying its program. If an op gets no credit, it sends its remote data over TCP after the last
// completion; package conn limits these.
const (
	noticeLen  = 24
	numberMask = 1<<24 - 1
	recvBit    = 1 << 63 // of a WC.ID: it is a receive
)

// A credit frame: rail u8, queue pair u8 (wirePair: that of messages), how many u16.
const creditLen = 4

// A recvBuffers is the memory of a queue pair's receives.
type recvBuffers struct {
	mem  []byte
	slot int // bytes of a receive
	mr   verbs.MR
	keys verbs.Keys
	owed int // credits not yet returned; under notices.mu
}

// open allocates and registers memory for n receives.
func (b *recvBuffers) open(pd verbs.PD, n, slot int) (err error) {
	if b.mem, err = sys.Alloc(n * slot); err != nil {
		return err
	}
	b.slot = slot
	at := sys.AddrOf(b.mem)
	b.mr, b.keys, err = pd.RegMR(at, uint64(len(b.mem)), at, verbs.AccessLocalWrite)
	return err
}

func (b *recvBuffers) count() int { return len(b.mem) / max(1, b.slot) }

// addr returns the address of the i-th receive.
func (b *recvBuffers) addr(i int) uint64 { return sys.AddrOf(b.mem) + uint64(i*b.slot) }

// post posts the i-th receive.
func (b *recvBuffers) post(qp verbs.QP, i int) error {
	wr := [1]verbs.RecvWR{{ID: recvBit | uint64(i), Count: 1}}
	sge := [1]verbs.SGE{{Addr: b.addr(i), Len: uint32(b.slot), LKey: b.keys.Local}}
	_, err := qp.PostRecv(wr[:], sge[:])
	return err
}

// close frees the memory. The queue pair must be destroyed.
func (b *recvBuffers) close() error {
	if b.mr != 0 {
		if err := b.mr.Close(); err != nil {
			return err // the device may still use it
		}
	}
	if b.mem == nil {
		return nil
	}
	return sys.Free(b.mem)
}

// credit takes a credit for remote data, if one is available.
func (p *pair) credit() bool { return p.inline >= noticeLen && p.takeCredit() }

// takeCredit takes a credit for a send, if one is available.
func (p *pair) takeCredit() bool {
	if p.credits.Add(-1) >= 0 {
		return true
	}
	p.credits.Add(1)
	return false
}

// creditAll takes one credit of each pair, or none at all.
func creditAll(pairs []*pair) bool {
	for i, p := range pairs {
		if !p.credit() {
			for _, q := range pairs[:i] {
				q.credits.Add(1)
			}
			return false
		}
	}
	return true
}

// notices are notifications of the peer's remote data for our program.
type notices struct {
	path *dataPath

	mu      sync.Mutex
	came    map[uint32]int // by op: sends that have arrived, until all have
	pending []arrival      // the queue was full
	stopped bool
}

// An arrival is a completion for the program, and the queue pair whose credit is returned with it.
type arrival struct {
	completion fabric.Completion
	last       *pair
}

var _ util.Source = (*notices)(nil)

// A remoteData is the payload of a send that announces a write.
type remoteData struct{ data, length, ticket uint64 }

// parseRemoteData parses noticeLen bytes. They are untrusted.
func parseRemoteData(b []byte) remoteData {
	return remoteData{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}
}

// arrived handles a completed receive, and posts it again.
func (p *pair) arrived(wc *verbs.WC) error {
	if p.wire != nil {
		return p.wire.arrived(wc)
	}
	b, i := &p.recvs, int(wc.ID&^recvBit)
	if !wc.HasImm || wc.Bytes != noticeLen || i >= b.count() || wc.Imm>>24 == 0 {
		return fmt.Errorf("send of %d bytes on queue pair %d, want remote data of a write: %w", wc.Bytes, p.num, fabric.ErrProtocol)
	}
	x := parseRemoteData(b.mem[i*noticeLen:][:noticeLen])
	posted := b.post(p.qp, i)
	if err := p.rail.path.notices.add(p, wc.Imm, x); err != nil { // even if posting has failed
		return err
	}
	if posted != nil {
		return fmt.Errorf("post a receive to queue pair %d of %s: %w: %w", p.num, p.rail, posted, fabric.ErrConnReset)
	}
	return nil
}

// add counts a send, and notifies the program at an op's last one. An error means that the peer has
// violated the protocol.
func (n *notices) add(p *pair, imm uint32, x remoteData) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.path.grants.Given.MayWrite(x.ticket) {
		return fmt.Errorf("remote data %d of a write under grant %#x, which does not allow writes, from %s: %w", x.data, x.ticket, n.path.port.Peer(), fabric.ErrProtocol)
	}
	number, all := imm&numberMask, int(imm>>24)
	if open := max(len(n.pending), len(n.came)); open > 0 && open > n.path.rails.receives() { // each holds a credit that was not returned
		return fmt.Errorf("remote data of %d ops is waiting, and of %d arrived in part, from %s: %w", len(n.pending), len(n.came), n.path.port.Peer(), fabric.ErrProtocol)
	}
	if n.came == nil {
		n.came = make(map[uint32]int)
	}
	if n.came[number]++; n.came[number] < all {
		n.repay(p)
		return nil
	}
	delete(n.came, number)
	c := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: n.path.port.Source(), Len: x.length, Data: x.data}
	if len(n.pending) == 0 && n.path.port.RecvCQ().TryPush(c) {
		n.repay(p)
		return nil
	}
	if n.pending = append(n.pending, arrival{c, p}); len(n.pending) == 1 {
		n.path.port.RecvCQ().AddSource(n)
	}
	return nil
}

// repay returns a credit to the peer, several in one frame. The caller holds mu.
func (n *notices) repay(p *pair) {
	if p.recvs.owed++; n.stopped || p.recvs.owed < (p.recvs.count()+1)/2 {
		return
	}
	body := []byte{byte(p.rail.index), byte(p.index)}
	n.path.ops.Send(frameCredit, binary.BigEndian.AppendUint16(body, uint16(p.recvs.owed)))
	p.recvs.owed = 0
}

// Drain moves pending arrivals into the queue; see util.Source.
func (n *notices) Drain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	cq := n.path.port.RecvCQ()
	for len(n.pending) > 0 && cq.TryPush(n.pending[0].completion) {
		n.repay(n.pending[0].last)
		n.pending = n.pending[1:]
		if len(n.pending) == 0 {
			n.pending = nil
			cq.RemoveSource(n)
		}
	}
}

// Arm has nothing to do, because the poller pushes arrivals and so wakes readers; see util.Source.
func (n *notices) Arm(bool) {}

// stop stops returning credits. Pending arrivals stay for the readers.
func (n *notices) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = true
}

// A credit is the contents of a credit frame.
type credit struct {
	rail, pair uint8
	n          uint32
}

func parseCredit(b []byte) (credit, error) {
	if len(b) != creditLen {
		return credit{}, fmt.Errorf("credit frame of %d bytes, want %d: %w", len(b), creditLen, fabric.ErrProtocol)
	}
	return credit{b[0], b[1], uint32(binary.BigEndian.Uint16(b[2:]))}, nil
}

// repaid adds returned credits.
func (p *pair) repaid(n uint32) error {
	if n > uint32(p.most) || p.credits.Add(int32(n)) > p.most {
		return fmt.Errorf("%d credits too many for queue pair %d: %w", n, p.num, fabric.ErrProtocol)
	}
	return nil
}
