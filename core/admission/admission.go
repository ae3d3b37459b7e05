// SPDX-License-Identifier: MIT

// Package admission bounds the connections of a listener. It evicts the oldest connection instead
// of refusing a new one, so a client that opens many silent connections loses its own.
package admission

import (
	"container/list"
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// A Set holds connections ordered by last use. Safe for concurrent use.
type Set struct {
	limit, perHost int

	mu    sync.Mutex
	order list.List // of member, the least recently used first
	at    map[net.Conn]*list.Element
	hosts map[string]int
}

type member struct {
	conn net.Conn
	host string
}

// NewSet returns a Set of at most limit connections, and of at most perHost from one address. All
// connections over unix sockets count as one address.
func NewSet(limit, perHost int) *Set {
	return &Set{limit: limit, perHost: perHost, at: map[net.Conn]*list.Element{}, hosts: map[string]int{}}
}

// Add adds c. If that exceeds a limit, it removes and returns the least recently used connection
// that counts against the limit. The caller closes it.
func (s *Set) Add(c net.Conn) (evicted net.Conn) {
	host := hostOf(c.RemoteAddr())
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.hosts[host] >= s.perHost:
		evicted = s.oldest(host)
	case s.order.Len() >= s.limit:
		evicted = s.order.Front().Value.(member).conn
	}
	if evicted != nil {
		s.remove(evicted)
	}
	s.at[c] = s.order.PushBack(member{c, host})
	s.hosts[host]++
	return evicted
}

// oldest returns the oldest connection of that host. mu is held.
func (s *Set) oldest(host string) net.Conn {
	for e := s.order.Front(); ; e = e.Next() {
		if m := e.Value.(member); m.host == host {
			return m.conn
		}
	}
}

// Touch makes c the most recently used connection.
func (s *Set) Touch(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.at[c]; e != nil {
		s.order.MoveToBack(e)
	}
}

// Remove removes c and reports whether it was present.
func (s *Set) Remove(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(c)
}

// remove removes c. mu is held.
func (s *Set) remove(c net.Conn) bool {
	e := s.at[c]
	if e == nil {
		return false
	}
	delete(s.at, c)
	host := s.order.Remove(e).(member).host
	if s.hosts[host]--; s.hosts[host] == 0 {
		delete(s.hosts, host)
	}
	return true
}

// Len returns the number of connections.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order.Len()
}

// All returns all connections.
func (s *Set) All() []net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]net.Conn, 0, len(s.at))
	for c := range s.at {
		out = append(out, c)
	}
	return out
}

// hostOf returns the key under which connections of one host are counted: the IPv4 address, the
// IPv6 /64 network, or "" for a unix socket.
func hostOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.Prefix(64) // 64 bits fit an IPv6 address
	return network.String()
}

// The pauses of a Backoff.
const (
	firstPause = 5 * time.Millisecond
	mostPause  = 500 * time.Millisecond
)

// A Backoff spaces the attempts of a client whose peer evicted it or was busy. The zero value is
// ready for use.
type Backoff struct{ pause time.Duration }

// Wait sleeps before the next attempt, with exponential back-off and jitter of up to half of the
// pause. It reports whether ctx leaves time for an attempt.
func (b *Backoff) Wait(ctx context.Context) bool {
	b.pause = min(max(2*b.pause, firstPause), mostPause)
	timer := time.NewTimer(b.pause + rand.N(b.pause/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
