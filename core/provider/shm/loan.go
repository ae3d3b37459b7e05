// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/stream"
)

// A loan is the right to reach one region of the peer, on the initiator's side.
//
//	asked ──frameLend──▶ granted ──frameRevoke──▶ returned
//	   └───frameRefuse──▶ gone, or for the stream
type loan struct {
	ticket uint64
	key    fabric.RegionKey

	// Set once, under mover.mu, before granted.
	base, size uint64
	access     fabric.Access
	granted    bool
	stream     bool // the region is device memory: its ops go through the stream

	parked []parkedOp // ops that wait for the answer; under mover.mu

	use local.Gate // slices that are copied under it
}

type parkedOp struct {
	ticket stream.Ticket
	op     *fabric.Op
}

// maxStream bounds how many regions are remembered for the stream; after that all are asked for again.
const maxStream = 4096

// findLoan returns the loan of key that is granted, or that is for the stream, or takes the op: parked until the peer answers, or finished as the mover has stopped.
func (m *mover) findLoan(t stream.Ticket, op *fabric.Op, key fabric.RegionKey) *loan {
	m.mu.Lock()
	if cause := m.cause; cause != nil {
		m.mu.Unlock()
		m.finish(t, cause)
		return nil
	}
	defer m.mu.Unlock()
	l := m.loans[key]
	if l != nil && (l.granted || l.stream) {
		return l
	}
	if l == nil {
		m.last++
		l = &loan{ticket: m.last, key: key}
		m.loans[key], m.asked[l.ticket] = l, l
		m.send(frameAsk, askFrame{l.ticket, key}.encode())
	}
	l.parked = append(l.parked, parkedOp{t, op})
	return nil
}

// check holds op against what was lent: rights, then bounds.
func (l *loan) check(op *fabric.Op) error {
	want := fabric.AccessRemoteRead
	if op.Kind == fabric.OpWrite {
		want = fabric.AccessRemoteWrite
	}
	if l.access&want == 0 {
		return local.OpFault(fabric.ErrAccess, "region %d", l.key.ID)
	}
	list := remoteSegs{op: op}
	for i := range list.len() {
		if off, n := list.at(i); off > l.size || n > l.size-off {
			return local.OpFault(fabric.ErrRange, "%d bytes at %#x of region %d, which has %d", n, off, l.key.ID, l.size)
		}
	}
	return nil
}

func (l *loan) revoked() error {
	return local.OpFault(fabric.ErrNoKey, "region %d was closed by its owner", l.key.ID)
}

// onLend starts what waited, on workers: the stream stands still meanwhile.
func (m *mover) onLend(body []byte) error {
	f, err := parseLend(body)
	if err != nil {
		return err
	}
	m.mu.Lock()
	l := m.asked[f.ticket]
	if l == nil || l.granted {
		m.mu.Unlock()
		return fmt.Errorf("loan %d was not asked for: %w", f.ticket, fabric.ErrProtocol)
	}
	l.base, l.size, l.access, l.granted = f.base, f.size, f.access, true
	parked := l.parked
	l.parked = nil
	m.mu.Unlock()
	for _, p := range parked {
		m.start(p.ticket, p.op, l, false)
	}
	return nil
}

func (m *mover) onRefuse(body []byte) error {
	f, err := parseRefuse(body)
	if err != nil {
		return err
	}
	m.mu.Lock()
	l := m.asked[f.ticket]
	if l == nil || l.granted {
		m.mu.Unlock()
		return fmt.Errorf("refusal of loan %d, which was not asked for: %w", f.ticket, fabric.ErrProtocol)
	}
	m.forget(l)
	parked := l.parked
	l.parked = nil
	if f.err == fabric.ErrNotSupported {
		m.leaveToStream(l)
	}
	m.mu.Unlock()
	for _, p := range parked {
		if l.stream {
			m.ep.HandBack(p.ticket)
			m.ops.Leave()
			continue
		}
		m.finish(p.ticket, local.OpFault(f.err, "region %d of %s", l.key.ID, m.ep.Peer()))
	}
	return nil
}

// leaveToStream remembers that a region is not lent. With mu held.
func (m *mover) leaveToStream(l *loan) {
	if m.unlent >= maxStream {
		for key, old := range m.loans {
			if old.stream {
				delete(m.loans, key)
			}
		}
		m.unlent = 0
	}
	l.stream = true
	m.loans[l.key] = l
	m.unlent++
}

// onRevoke gives a loan back when the slices under it are done.
func (m *mover) onRevoke(body []byte) error {
	ticket, err := parseTicket(body)
	if err != nil {
		return err
	}
	m.mu.Lock()
	l := m.asked[ticket]
	if l == nil || !l.granted {
		m.mu.Unlock()
		return fmt.Errorf("loan %d revoked, which there is not: %w", ticket, fabric.ErrProtocol)
	}
	m.forget(l)
	m.mu.Unlock()
	empty := l.use.Shut()
	select {
	case <-empty:
		m.send(frameReturn, encodeTicket(ticket))
	default:
		go func() {
			<-empty
			m.send(frameReturn, encodeTicket(ticket))
		}()
	}
	return nil
}

// forget takes l out of the tables. With mu held.
func (m *mover) forget(l *loan) {
	delete(m.loans, l.key)
	delete(m.asked, l.ticket)
}
