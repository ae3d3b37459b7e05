// SPDX-License-Identifier: MIT

package io

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"time"
)

// tokenLife is how long a token admits, while the control connection that it was given over stays open.
const tokenLife = 60 * time.Second

// A token admits one peer's data connections for a while.
type token struct {
	who  identity
	born time.Time
	used map[string]bool // by transport: a token admits one connection over each
}

// issue makes a token for the sender of h. A control connection gets one, so there are no more of them than of those.
func (s *controlServer) issue(h hello) ([]byte, error) {
	raw := make([]byte, tokenLen)
	if _, err := rand.Read(raw); err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	who, e := h.identity(), s.engine
	if who.key == e.key && (who.incarnation != e.incarnation || who.public != e.signer.public) {
		return nil, fmt.Errorf("engine %q is this one, and the peer another: %w", e.key, ErrNotFound)
	}
	if err := e.store.admits(who); err != nil {
		return nil, err // with s.mu held: who is retired after this loses the token in revoke
	}
	s.tokens[string(raw)] = token{who, time.Now(), map[string]bool{}}
	return raw, nil
}

// revoke makes the tokens of all for whom gone is true worthless.
func (s *controlServer) revoke(gone func(identity) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, t := range s.tokens {
		if gone(t.who) {
			delete(s.tokens, k)
		}
	}
}

// forget makes a token worthless. Data connections that it has admitted stay.
func (s *controlServer) forget(raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, string(raw))
}

// redeem tells who may connect with the ticket over the named transport, once.
func (s *controlServer) redeem(ticket []byte, transport string) (token, bool) {
	if len(ticket) != ticketLen {
		return token{}, false
	}
	raw, signature := ticket[:tokenLen], ticket[tokenLen:]
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tokens[string(raw)]
	if !ok || time.Since(t.born) > tokenLife || t.used[transport] || !t.who.public.verify(signature, roleData, raw, []byte(transport)) {
		return token{}, false
	}
	t.used[transport] = true
	return t, true
}

// holds tells whether a redeemed token has not been dropped.
func (s *controlServer) holds(ticket []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.tokens[string(ticket[:tokenLen])]
	return known
}

// dropLink closes the data connection of a token, which is worth nothing from then on.
func (s *controlServer) dropLink(c net.Conn, body []byte) error {
	var q dropLink
	if err := decodeControl(body, &q); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.tokens, string(q.Token))
	s.mu.Unlock()
	var reply dropReply
	for _, tr := range s.engine.openTransports() {
		for _, l := range tr.allLinks() {
			if subtle.ConstantTimeCompare(l.token, q.Token) == 1 {
				reply.Found = true
				l.close(nil)
			}
		}
	}
	return writeControl(c, controlDropped, &reply)
}
