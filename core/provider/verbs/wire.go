// SPDX-License-Identifier: MIT

package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
	"mori/native/verbs"
)

// A wire is a queue pair of the connection's first rail that carries frames of package conn: sends
// of up to wireBytes, each into a receive of the peer. A send takes a credit of the pair, so that
// the peer always has a receive posted. The target returns the credit once conn has consumed the
// bytes and the receive is posted again, in one of three ways:
//
//   - in the immediate data of a send of its own
//   - with a send of no bytes, if it has nothing to send
//   - with a frame over TCP, if it has no credit for that, so that two sides without credits never
//     wait for each other
type wire struct {
	path *dataPath
	pair *pair
	owed atomic.Int32 // credits not yet returned

	mem  []byte // one buffer for each send
	mr   verbs.MR
	keys verbs.Keys
	most uint64 // bytes of the peer's receives

	out sync.Mutex // held while posting, so that sends are in order

	mu    sync.Mutex // protects what follows; taken after out
	free  []*sendBuffer
	short bool // the stream waits for a buffer or a credit
	over  bool

	in          sync.Mutex // protects what follows
	came        []received // a ring with one element for each receive
	first, last int        // numbers of the oldest and of the next element
	taken       int        // bytes of the oldest that were consumed
	news        atomic.Bool
}

// A received is a receive with unconsumed bytes.
type received struct{ slot, n int }

// A sendBuffer is a buffer of a wire and the posting of its bytes.
type sendBuffer struct {
	posting
	wire *wire
	mem  []byte
}

var _ conn.Wire = (*wire)(nil)

// Buffers of a wire, chosen and not measured: 384 KiB for each connection.
const (
	wireBytes = 8 << 10
	wireRecvs = 32
	wireSends = 16
	wireLeast = 4 // with fewer sends or receives, a wire is not worth it

	wirePair = 255 // the wire's queue pair number in a credit frame
)

// newWire makes a queue pair with buffers, not connected.
func newWire(r *rail, s *Settings, sends, recvs int) (w *wire, err error) {
	w = &wire{path: r.path}
	one := *s
	one.SendSGE = 1
	if w.pair, err = newPair(r, &one, sends, recvs, wireBytes); err != nil {
		return nil, err
	}
	w.pair.wire = w
	w.came = make([]received, recvs)
	if w.mem, err = sys.Alloc(sends * wireBytes); err == nil {
		at := sys.AddrOf(w.mem)
		w.mr, w.keys, err = r.nic.pd.RegMR(at, uint64(len(w.mem)), at, verbs.AccessLocalWrite)
	}
	if err != nil {
		return nil, errors.Join(err, w.pair.close(), w.close())
	}
	for i := range sends {
		b := &sendBuffer{wire: w, mem: w.mem[i*wireBytes:][:wireBytes]}
		b.buffer, b.wrs, b.sges = b, make([]verbs.SendWR, 1), make([]verbs.SGE, 1)
		w.free = append(w.free, b)
	}
	return w, nil
}

// close frees the buffers. The queue pair must be destroyed.
func (w *wire) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.mr != 0 {
		if err := w.mr.Close(); err != nil {
			return err // the device may still use them
		}
		w.mr = 0
	}
	if w.mem == nil {
		return nil
	}
	mem := w.mem
	w.mem = nil
	return sys.Free(mem)
}

// Send copies bytes into buffers and posts them; see conn.Wire.
func (w *wire) Send(iov []sys.Iovec) (n int, err error) {
	w.out.Lock()
	defer w.out.Unlock()
	var off uint64 // of iov[0]
	for len(iov) > 0 {
		b := w.take(true)
		if b == nil {
			break
		}
		k := uint64(0)
		for len(iov) > 0 && k < w.most {
			m := min(iov[0].Len-off, w.most-k)
			if err := sys.Move(sys.AddrOf(b.mem)+k, iov[0].Addr+off, m); err != nil {
				w.pair.credits.Add(1)
				w.sent(b)
				return n, err
			}
			k, off = k+m, off+m
			if off == iov[0].Len {
				iov, off = iov[1:], 0
			}
		}
		w.post(b, k)
		n += int(k)
	}
	if n == 0 && len(iov) > 0 {
		return 0, syscall.EAGAIN
	}
	return n, nil
}

// take takes a buffer and a credit, or records that they are wanted.
func (w *wire) take(wanted bool) *sendBuffer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := len(w.free); k > 0 && !w.over && w.pair.takeCredit() {
		b := w.free[k-1]
		w.free = w.free[:k-1]
		return b
	}
	w.short = w.short || wanted
	return nil
}

// post sends the first n bytes of a buffer, and the owed credits. The caller holds out, so that
// sends are in order.
func (w *wire) post(b *sendBuffer, n uint64) {
	wr := &b.wrs[0]
	*wr = verbs.SendWR{Op: verbs.OpSendImm, Imm: uint32(w.owed.Swap(0)), Count: 1}
	if n <= uint64(w.pair.inline) {
		wr.Flags = verbs.Inline
	}
	if n == 0 {
		wr.Flags, wr.Count = 0, 0
	}
	b.sges[0] = verbs.SGE{Addr: sys.AddrOf(b.mem), Len: uint32(n), LKey: w.keys.Local}
	b.left.Store(1)
	b.fault.Store(nil)
	w.pair.add(part{w.pair, &b.posting, 0, 1})
}

// sent frees a buffer. If its send failed, the connection ends elsewhere.
func (w *wire) sent(b *sendBuffer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = append(w.free, b)
}

// arrived handles a completed receive.
func (w *wire) arrived(wc *verbs.WC) error {
	i := int(wc.ID &^ recvBit)
	if !wc.HasImm || wc.Op != verbs.WCRecv || wc.Bytes > wireBytes || i >= len(w.came) {
		return fmt.Errorf("send of %d bytes on queue pair %d, want frames and credits: %w", wc.Bytes, w.pair.num, fabric.ErrProtocol)
	}
	if err := w.pair.repaid(wc.Imm); err != nil {
		return err
	}
	w.news.Store(true)
	if wc.Bytes == 0 {
		return w.again(i)
	}
	w.in.Lock()
	defer w.in.Unlock()
	w.came[w.last%len(w.came)] = received{i, int(wc.Bytes)}
	w.last++
	return nil
}

// again posts a receive whose bytes were consumed.
func (w *wire) again(slot int) error {
	if err := w.pair.recvs.post(w.pair.qp, slot); err != nil {
		return fmt.Errorf("post a receive to queue pair %d of %s: %w: %w", w.pair.num, w.pair.rail, err, fabric.ErrConnReset)
	}
	w.owed.Add(1)
	return nil
}

// Recv copies received bytes; see conn.Wire.
func (w *wire) Recv(iov []sys.Iovec) (n int, err error) {
	w.in.Lock()
	defer w.in.Unlock()
	var off uint64 // of iov[0]
	for len(iov) > 0 && w.first < w.last {
		at := &w.came[w.first%len(w.came)]
		m := min(iov[0].Len-off, uint64(at.n-w.taken))
		if err := sys.Move(iov[0].Addr+off, w.pair.recvs.addr(at.slot)+uint64(w.taken), m); err != nil {
			return n, err
		}
		n, off, w.taken = n+int(m), off+m, w.taken+int(m)
		if off == iov[0].Len {
			iov, off = iov[1:], 0
		}
		if w.taken == at.n {
			w.first, w.taken = w.first+1, 0
			if err := w.again(at.slot); err != nil {
				w.path.port.Fail(err)
				return n, nil
			}
		}
	}
	if int(w.owed.Load()) > len(w.came)*3/4 { // long before conn has anything to send
		w.repay()
	}
	if n == 0 && len(iov) > 0 {
		return 0, syscall.EAGAIN
	}
	return n, nil
}

// repay returns credits to the peer if no send does.
func (w *wire) repay() {
	w.out.Lock()
	defer w.out.Unlock()
	if b := w.take(false); b != nil {
		w.post(b, 0)
	} else if n := w.owed.Swap(0); n > 0 {
		w.path.ops.Send(frameCredit, binary.BigEndian.AppendUint16([]byte{byte(w.pair.rail.index), wirePair}, uint16(n)))
	}
}

// settle continues what completions or credits have made possible.
func (w *wire) settle() {
	w.mu.Lock()
	room := w.short && len(w.free) > 0 && w.pair.credits.Load() > 0
	if room {
		w.short = false
	}
	w.mu.Unlock()
	if room {
		w.path.port.WireRoom()
	}
	if w.news.Swap(false) {
		w.path.port.WireCame()
		if int(w.owed.Load()) > len(w.came)/2 {
			w.repay()
		}
	}
}
