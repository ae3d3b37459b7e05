// SPDX-License-Identifier: MIT

package message

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"mori/io/internal/identity"
)

// Lengths in bytes.
const (
	NonceLen  = 16
	TokenLen  = 16
	TicketLen = TokenLen + identity.SignatureSize
)

// The roles of proofs and signatures.
const (
	RoleServer  = "mori control server 2"
	RoleClient  = "mori control client 2"
	RoleWelcome = "mori control welcome 2"
	RoleData    = "mori data connection 2"
)

// NewNonce returns random bytes.
func NewNonce() ([]byte, error) {
	n := make([]byte, NonceLen)
	if _, err := rand.Read(n); err != nil {
		return nil, fmt.Errorf("generate a nonce: %w", err)
	}
	return n, nil
}

// ID returns the identity that the sender of h claims.
func (h *Hello) ID() identity.ID {
	who := identity.ID{Key: h.Key, Incarnation: h.Incarnation}
	copy(who.Public[:], h.PublicKey)
	return who
}

// Opening returns the fields of a Hello and of the Challenge that answers it, except the
// Challenge's proof.
func Opening(h *Hello, c *Challenge) [][]byte {
	return [][]byte{number(uint64(h.Version)), []byte(h.Key), []byte(h.NodeID), number(h.Incarnation),
		[]byte(h.PeerKey), number(h.PeerIncarnation), h.Nonce, flag(h.Auth), h.PublicKey,
		c.Nonce, number(c.Incarnation), c.PublicKey}
}

// Closing returns the fields of the Opening and of the Welcome, except the Welcome's proof and
// signature.
func Closing(h *Hello, c *Challenge, w *Welcome) [][]byte {
	all := append(Opening(h, c), number(uint64(w.Version)), []byte(w.Key), []byte(w.NodeID),
		number(w.Incarnation),
		flag(w.Notify), w.Token)
	for _, e := range w.Endpoints {
		all = append(all, []byte(e.Name), []byte(e.Addr))
	}
	return all
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func flag(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

// Ticket returns what a data connection sends first: the token, and the signature of the engine
// that received the token.
func Ticket(s identity.Signer, token []byte, transport string) []byte {
	return append(append([]byte(nil), token...), s.Sign(RoleData, token, []byte(transport))...)
}

// Admits reports whether who has signed a ticket of TicketLen bytes for the transport.
func Admits(who identity.ID, ticket []byte, transport string) bool {
	token, signature := ticket[:TokenLen], ticket[TokenLen:]
	return who.Public.Verify(signature, RoleData, token, []byte(transport))
}
