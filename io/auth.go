// SPDX-License-Identifier: MIT

package io

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Authentication of the control plane, where both engines have the same secret (MORI_AUTH_SECRET):
//
//	client                                server
//	hello, with a nonce           ──▶
//	                              ◀──     challenge: a nonce and the server's proof
//	the client's proof            ──▶
//	                              ◀──     welcome, with a token for data connections
//
// A proof is an HMAC-SHA256 under the secret over its sender's role, both nonces, and both engines' keys and incarnations. Nonces are fresh
// and random, so a recorded proof is worth nothing; roles differ, so neither side's proof serves as the other's. A data connection
// brings its token and a proof over that, once for each transport. Nothing is encrypted: that is what TLS is for.

const (
	nonceLen = 16
	tokenLen = 16
)

// The roles of proofs.
const (
	roleServer = "mori control server 1"
	roleClient = "mori control client 1"
	roleData   = "mori data connection 1"
)

// A secret proves that its holder may talk to us. Empty means that nobody has to.
type secret string

func newNonce() ([]byte, error) {
	n := make([]byte, nonceLen)
	if _, err := rand.Read(n); err != nil {
		return nil, fmt.Errorf("draw a nonce: %w", err)
	}
	return n, nil
}

// proof is the HMAC over fields, none of which can be taken for a part of its neighbour.
func (s secret) proof(role string, fields ...[]byte) []byte {
	m := hmac.New(sha256.New, []byte(s))
	var n [8]byte
	for _, f := range append([][]byte{[]byte(role)}, fields...) {
		binary.BigEndian.PutUint64(n[:], uint64(len(f)))
		m.Write(n[:])
		m.Write(f)
	}
	return m.Sum(nil)
}

// of is the proof of a role over a greeting.
func (s secret) of(role string, h *hello, c *challenge, serverIncarnation uint64) []byte {
	return s.proof(role, h.Nonce, c.Nonce, []byte(h.Key), binary.BigEndian.AppendUint64(nil, h.Incarnation),
		[]byte(h.PeerKey), binary.BigEndian.AppendUint64(nil, serverIncarnation))
}

// ticket is what a data connection brings: the token, and with a secret the proof that its bearer knows that, too.
func (s secret) ticket(token []byte) []byte {
	if s == "" {
		return token
	}
	return append(append([]byte(nil), token...), s.proof(roleData, token)...)
}

// token takes a ticket apart, false if it does not prove what it has to.
func (s secret) token(ticket []byte) ([]byte, bool) {
	if len(ticket) < tokenLen {
		return nil, false
	}
	token := ticket[:tokenLen]
	return token, hmac.Equal(ticket, s.ticket(token))
}
