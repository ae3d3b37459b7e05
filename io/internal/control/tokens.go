// SPDX-License-Identifier: MIT

package control

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"mori/io/internal/identity"
	"mori/io/internal/message"
)

// tokenLife is how long a token is valid while the control connection that it was issued over is
// open.
const tokenLife = 60 * time.Second

// tokens holds the tokens that admit data connections. The zero value is ready.
type tokens struct {
	mu  sync.Mutex
	all map[string]token
}

// A token admits one peer's data connections for a limited time.
type token struct {
	who  identity.ID
	born time.Time
	used map[string]bool // by transport: a token admits one connection over each
}

// issue makes a token for who, unless admits returns an error. Each control connection gets one, so
// tokens cannot outnumber connections.
func (k *tokens) issue(who identity.ID, admits func(identity.ID) error) ([]byte, error) {
	raw := make([]byte, message.TokenLen)
	if _, err := rand.Read(raw); err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := admits(who); err != nil {
		return nil, err // with mu held, so that revoke also finds the token of an engine that is retired after this
	}
	if k.all == nil {
		k.all = map[string]token{}
	}
	k.all[string(raw)] = token{who, time.Now(), map[string]bool{}}
	return raw, nil
}

// revoke invalidates the tokens of every ID for which gone is true.
func (k *tokens) revoke(gone func(identity.ID) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for raw, t := range k.all {
		if gone(t.who) {
			delete(k.all, raw)
		}
	}
}

// forget invalidates a token. Data connections that it has admitted stay open.
func (k *tokens) forget(raw []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, string(raw))
}

// redeem returns the engine that may connect with the ticket over the named transport. It accepts a
// ticket once per transport.
func (k *tokens) redeem(ticket []byte, transport string) (who identity.ID, ok bool) {
	if len(ticket) != message.TicketLen {
		return identity.ID{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.all[string(ticket[:message.TokenLen])]
	if !ok || time.Since(t.born) > tokenLife || t.used[transport] ||
		!message.Admits(t.who, ticket, transport) {
		return identity.ID{}, false
	}
	t.used[transport] = true
	return t.who, true
}

// holds reports whether the token of a redeemed ticket is still valid.
func (k *tokens) holds(ticket []byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, known := k.all[string(ticket[:message.TokenLen])]
	return known
}

func (k *tokens) len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.all)
}
