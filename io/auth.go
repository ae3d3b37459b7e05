// SPDX-License-Identifier: MIT

package io

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// The handshake of the control plane:
//
//	client                                        server
//	hello: who I am, whom I want, a nonce   ──▶
//	                                        ◀──   challenge: a nonce, the server's public key and its proof
//	proof, signature                        ──▶
//	                                        ◀──   welcome: a token and where transports listen, proof, signature
//
// A signature shows that its sender holds the private key of the engine that it names, whose descriptor has the public
// one. A proof shows that its sender has the shared secret (MORI_AUTH_SECRET), where there is one; it is an HMAC-SHA256.
// Both cover the role of their sender and every field of the messages before them, and those of the welcome cover all of
// the welcome. Nonces are fresh, so a recorded handshake is worth nothing. Roles differ, so neither side's proof serves as
// the other's. A data connection brings its token and a signature over that and the transport. Nothing is encrypted:
// that is what TLS is for.

const (
	nonceLen  = 16
	tokenLen  = 16
	ticketLen = tokenLen + ed25519.SignatureSize
)

// The roles of proofs and signatures.
const (
	roleServer  = "mori control server 2"
	roleClient  = "mori control client 2"
	roleWelcome = "mori control welcome 2"
	roleData    = "mori data connection 2"
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

// digest is the SHA-256 over a role and fields, none of which can be taken for a part of its neighbour.
func digest(role string, fields ...[]byte) []byte {
	m := sha256.New()
	var n [8]byte
	for _, f := range append([][]byte{[]byte(role)}, fields...) {
		binary.BigEndian.PutUint64(n[:], uint64(len(f)))
		m.Write(n[:])
		m.Write(f)
	}
	return m.Sum(nil)
}

// proof is the HMAC over fields for a role; nil without a secret.
func (s secret) proof(role string, fields ...[]byte) []byte {
	if s == "" {
		return nil
	}
	m := hmac.New(sha256.New, []byte(s))
	m.Write(digest(role, fields...))
	return m.Sum(nil)
}

// proves reports whether proof is the one over fields for a role. Without a secret nothing has to be proven.
func (s secret) proves(proof []byte, role string, fields ...[]byte) bool {
	return s == "" || hmac.Equal(proof, s.proof(role, fields...))
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func flag(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

// opening lists the fields of a hello and of the challenge that answers it, but for the challenge's proof.
func opening(h *hello, c *challenge) [][]byte {
	return [][]byte{number(uint64(h.Version)), []byte(h.Key), []byte(h.NodeID), number(h.Incarnation), []byte(h.PeerKey), number(h.PeerIncarnation), h.Nonce,
		flag(h.Auth), h.PublicKey, c.Nonce, number(c.Incarnation), c.PublicKey}
}

// closing lists the fields of the opening and of the welcome, but for the welcome's proof and signature.
func closing(h *hello, c *challenge, w *welcome) [][]byte {
	all := append(opening(h, c), number(uint64(w.Version)), []byte(w.Key), []byte(w.NodeID), number(w.Incarnation), flag(w.Notify), w.Token)
	for _, e := range w.Endpoints {
		all = append(all, []byte(e.Name), []byte(e.Addr))
	}
	return all
}

// ticket is what a data connection brings: the token and the signature of the engine that got it.
func (s signer) ticket(token []byte, transport string) []byte {
	return append(append([]byte(nil), token...), s.sign(roleData, token, []byte(transport))...)
}
