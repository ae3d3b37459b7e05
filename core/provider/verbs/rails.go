// SPDX-License-Identifier: MIT

package verbs

import (
	"fmt"
	"strings"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/internal/pathbase"
)

// rails are the rails of a data path, for its ops.
type rails struct {
	all   []*rail       // constant once one of them is connected
	ready chan struct{} // closed by up
	gone  chan struct{} // closed when the rails close
	next  atomic.Uint32 // number of the queue pair for the next short op

	// Constant once ready is closed.
	pairs             []*pair // of all rails, without those for messages
	maxInline, maxRun uint64  // bytes of a write without registered memory, and of a work request
}

func (s *rails) init() { s.ready, s.gone = make(chan struct{}), make(chan struct{}) }

// up lets ops start.
func (s *rails) up() {
	s.maxInline, s.maxRun = maxInline, 1<<30
	for _, r := range s.all {
		s.pairs = append(s.pairs, r.pairs...)
		if most := uint64(r.nic.link.MaxMsg); most > 0 {
			s.maxRun = min(s.maxRun, most)
		}
		for _, p := range r.pairs {
			s.maxInline = min(s.maxInline, uint64(p.inline))
		}
	}
	close(s.ready)
}

func (s *rails) isReady() bool { return pathbase.IsClosed(s.ready) }

func (s *rails) isGone() bool { return pathbase.IsClosed(s.gone) }

// await waits for up. It returns false if stopped is closed first.
func (s *rails) await(stopped <-chan struct{}) bool {
	select {
	case <-s.ready:
		return true
	case <-stopped:
		return false
	}
}

// Long ops are spread over all queue pairs, in runs of at least stripeMin.
const stripeMin = 128 << 10

// choose returns the queue pairs for an op of total bytes: all of them if it is long, else the next
// one.
func (s *rails) choose(total uint64) []*pair {
	if len(s.pairs) > 1 && total < 2*stripeMin {
		i := int(s.next.Add(1)) % len(s.pairs)
		return s.pairs[i : i+1]
	}
	return s.pairs
}

// longest returns the most bytes of a run of an op of total bytes.
func (s *rails) longest(total uint64) uint64 {
	if n := uint64(len(s.pairs)); n > 1 && total >= 2*stripeMin {
		return min(s.maxRun, max(stripeMin, (total+n-1)/n))
	}
	return s.maxRun
}

// know reports whether the devices of all rails have a registration. A dead device does not have
// later registrations.
func (s *rails) know(g *registration) bool {
	for _, r := range s.all {
		if len(g.keys[r.nicAt]) == 0 {
			return false
		}
	}
	return true
}

// receives returns the number of receives of all queue pairs, which is the peer's number of
// credits.
func (s *rails) receives() (n int) {
	for _, r := range s.all {
		for _, p := range r.pairs {
			n += p.recvs.count()
		}
	}
	return n
}

// onCredit adds returned credits.
func (s *rails) onCredit(b []byte) error {
	c, err := parseCredit(b)
	if err != nil {
		return err
	}
	if !s.isReady() {
		return fmt.Errorf("credit before the rails are up: %w", fabric.ErrProtocol)
	}
	if int(c.rail) >= len(s.all) {
		return fmt.Errorf("credit for rail %d of %d: %w", c.rail, len(s.all), fabric.ErrProtocol)
	}
	r := s.all[c.rail]
	switch {
	case int(c.pair) < len(r.pairs):
		return r.pairs[c.pair].repaid(c.n)
	case c.pair != wirePair || r.wire == nil:
		return fmt.Errorf("credit for queue pair %d of %d: %w", c.pair, len(r.pairs), fabric.ErrProtocol)
	}
	err = r.wire.pair.repaid(c.n)
	r.wire.settle()
	return err
}

// describe names the rails, and says if messages have no queue pair.
func (s *rails) describe() string {
	var on []string
	for _, r := range s.all {
		text := r.String()
		if r.nic.why != "" {
			text += " (" + r.nic.why + ")"
		}
		on = append(on, text)
	}
	text := strings.Join(on, ", ")
	if s.all[0].wire == nil {
		text += "; messages use TCP: TLS encrypts them, or a device has no room for their queue pair"
	}
	return text
}
