// SPDX-License-Identifier: MIT

package grant

import (
	"fmt"
	"sync"

	"mori/core/fabric"
)

// A Holder records which regions of the peer this side may access.
type Holder[P any] struct {
	Out *Sender
	// Parse decodes the location of a region. Its input is not trusted.
	Parse func([]byte) (P, error)

	// The following may be nil or 0.

	// Answer is called after the peer has answered a request.
	Answer func(*Grant[P])
	// Over is called before a grant is returned, when it is no longer used. It may block.
	Over func(*Grant[P])
	// GaveUp is closed when pending accesses are no longer waited for. Their grants are not
	// returned.
	GaveUp <-chan struct{}
	// Refusals is how many regions refused with ErrNotSupported are remembered, so that they are
	// not requested again. When there are more, all are forgotten.
	Refusals int
	// Shares allows the peer to grant without a request.
	Shares bool

	mu        sync.Mutex
	byKey     map[fabric.RegionKey]*Grant[P]
	byTicket  map[uint64]*Grant[P]
	last      uint64
	refused   int
	stopped   bool
	returning sync.WaitGroup // revoked grants that wait for their accesses
}

// Find returns the grant of key. The first call requests it. Find returns nil after Stop.
func (h *Holder[P]) Find(key fabric.RegionKey) *Grant[P] {
	h.mu.Lock()
	l := h.byKey[key]
	if l != nil || h.stopped {
		h.mu.Unlock()
		return l
	}
	h.last++
	l = h.add(h.last)
	l.Key = key
	h.byKey[key] = l
	h.Out.Post(FrameRequest, encodeRequest(l.ticket, key))
	h.mu.Unlock()
	h.Out.Flush()
	return l
}

// add makes a grant. The caller holds mu.
func (h *Holder[P]) add(ticket uint64) *Grant[P] {
	if h.byKey == nil {
		h.byKey, h.byTicket = make(map[fabric.RegionKey]*Grant[P]), make(map[uint64]*Grant[P])
	}
	l := &Grant[P]{ticket: ticket, Answered: make(chan struct{})}
	h.byTicket[ticket] = l
	return l
}

// Share returns the share with this ticket, or nil if it was revoked.
func (h *Holder[P]) Share(ticket uint64) *Grant[P] {
	if ticket&ShareBit == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byTicket[ticket]
}

// OnGrant handles a grant or a share of the peer.
func (h *Holder[P]) OnGrant(body []byte) error {
	ticket, raw, err := parseGrant(body)
	if err != nil {
		return err
	}
	place, err := h.Parse(raw)
	if err != nil {
		return err
	}
	h.mu.Lock()
	l, err := h.granted(ticket)
	if l != nil {
		l.Region = place
		l.answer()
	}
	h.mu.Unlock()
	h.answered(l)
	return err
}

// granted returns the grant or share with this ticket. The caller holds mu.
func (h *Holder[P]) granted(ticket uint64) (*Grant[P], error) {
	if ticket&ShareBit == 0 {
		return h.open(ticket)
	}
	switch {
	case h.stopped:
		return nil, nil
	case !h.Shares || h.byTicket[ticket] != nil || len(h.byTicket) >= 2*MaxGrants:
		return nil, fmt.Errorf("share %#x granted twice or beyond %d: %w", ticket, 2*MaxGrants, fabric.ErrProtocol)
	}
	return h.add(ticket), nil
}

func (h *Holder[P]) answered(l *Grant[P]) {
	if l != nil && h.Answer != nil {
		h.Answer(l)
	}
}

// OnRefuse handles a refusal of the peer.
func (h *Holder[P]) OnRefuse(body []byte) error {
	ticket, why, err := parseRefuse(body)
	if err != nil {
		return err
	}
	h.mu.Lock()
	l, err := h.open(ticket)
	if l != nil {
		h.forget(l)
		if l.Refused = why; why == fabric.ErrNotSupported && h.Refusals > 0 {
			h.remember(l)
		}
		l.answer()
	}
	h.mu.Unlock()
	h.answered(l)
	return err
}

// remember keeps a refusal. The caller holds mu.
func (h *Holder[P]) remember(l *Grant[P]) {
	if h.refused >= h.Refusals {
		for key, old := range h.byKey {
			if old.Ready() && old.Refused != 0 {
				delete(h.byKey, key)
			}
		}
		h.refused = 0
	}
	h.refused++
	h.byKey[l.Key] = l
}

// open returns the request that waits for this answer, or nil and no error after Stop. The caller
// holds mu.
func (h *Holder[P]) open(ticket uint64) (*Grant[P], error) {
	if h.stopped {
		return nil, nil
	}
	l := h.byTicket[ticket]
	if l == nil || l.Granted() {
		return nil, fmt.Errorf("grant %#x was not requested: %w", ticket, fabric.ErrProtocol)
	}
	return l, nil
}

// OnRevoke returns a grant to the peer once its accesses have ended.
func (h *Holder[P]) OnRevoke(body []byte) error {
	ticket, err := parseTicket("revoke", body)
	if err != nil {
		return err
	}
	h.mu.Lock()
	l := h.byTicket[ticket]
	switch {
	case h.stopped:
		h.mu.Unlock()
		return nil
	case l == nil || !l.Granted():
		h.mu.Unlock()
		return fmt.Errorf("unknown grant %#x was revoked: %w", ticket, fabric.ErrProtocol)
	}
	h.forget(l)
	h.returning.Add(1)
	h.mu.Unlock()
	empty := l.Use.Shut()
	if h.Over == nil {
		select {
		case <-empty:
			h.giveBack(l, empty)
			return nil
		default:
		}
	}
	go h.giveBack(l, empty) // ends with the accesses; the end of the connection ends those
	return nil
}

func (h *Holder[P]) giveBack(l *Grant[P], empty <-chan struct{}) {
	defer h.returning.Done()
	select {
	case <-empty:
	case <-h.GaveUp:
		return
	}
	if h.Over != nil {
		h.Over(l)
	}
	h.Out.Post(FrameReturn, encodeTicket(l.ticket))
	h.Out.Flush()
}

func (h *Holder[P]) forget(l *Grant[P]) {
	delete(h.byTicket, l.ticket)
	if h.byKey[l.Key] == l {
		delete(h.byKey, l.Key)
	}
}

// Stop makes Find return nil and makes the Holder ignore frames. It returns the grants that were
// not revoked.
func (h *Holder[P]) Stop() []*Grant[P] {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	all := make([]*Grant[P], 0, len(h.byTicket))
	for _, l := range h.byTicket {
		all = append(all, l)
	}
	clear(h.byKey)
	clear(h.byTicket)
	return all
}

// Wait waits until all revoked grants were returned or given up.
func (h *Holder[P]) Wait() { h.returning.Wait() }
