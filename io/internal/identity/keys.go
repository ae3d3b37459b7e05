// SPDX-License-Identifier: MIT

package identity

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// SignatureSize is the length of a signature in bytes.
const SignatureSize = ed25519.SignatureSize

// A PublicKey is the public half of an engine's Ed25519 key pair, which its descriptor carries. All
// zero means none.
type PublicKey [ed25519.PublicKeySize]byte

// Verify reports whether the holder of k's private half made signature over fields, for a role.
func (k PublicKey) Verify(signature []byte, role string, fields ...[]byte) bool {
	return ed25519.Verify(k[:], Digest(role, fields...), signature)
}

// A Signer holds the private half of an engine's key pair.
type Signer struct {
	Public  PublicKey
	private ed25519.PrivateKey
}

// NewSigner generates a key pair.
func NewSigner() (s Signer, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return s, fmt.Errorf("make a key pair: %w", err)
	}
	s.private = private
	copy(s.Public[:], public)
	return s, nil
}

// Sign signs fields for a role.
func (s Signer) Sign(role string, fields ...[]byte) []byte {
	return ed25519.Sign(s.private, Digest(role, fields...))
}

// A Secret proves that its holder may talk to this engine. If it is empty, no proof is needed.
type Secret string

// Proof returns the HMAC over fields for a role; nil without a secret.
func (s Secret) Proof(role string, fields ...[]byte) []byte {
	if s == "" {
		return nil
	}
	m := hmac.New(sha256.New, []byte(s))
	m.Write(Digest(role, fields...))
	return m.Sum(nil)
}

// Proves reports whether proof is valid for fields and role. Without a secret, every proof is
// valid.
func (s Secret) Proves(proof []byte, role string, fields ...[]byte) bool {
	return s == "" || hmac.Equal(proof, s.Proof(role, fields...))
}

// Digest returns the SHA-256 over a role and fields. It covers the length of each field, so bytes
// cannot move from one field to the next.
func Digest(role string, fields ...[]byte) []byte {
	m := sha256.New()
	var n [8]byte
	for _, f := range append([][]byte{[]byte(role)}, fields...) {
		binary.BigEndian.PutUint64(n[:], uint64(len(f)))
		m.Write(n[:])
		m.Write(f)
	}
	return m.Sum(nil)
}
