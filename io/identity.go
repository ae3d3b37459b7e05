// SPDX-License-Identifier: MIT

package io

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
)

// A publicKey is the half of an engine's Ed25519 key pair that its descriptor carries; all zero = none.
type publicKey [ed25519.PublicKeySize]byte

// An identity is one incarnation of an engine. An engine that is restarted keeps its key and gets a
// new incarnation and key pair, so that nothing its predecessor did counts as its own.
type identity struct {
	key         string
	incarnation uint64
	public      publicKey // what a peer has proven to hold the private half of
}

// identity returns who d describes. Without an incarnation or a public key it equals no peer's.
func (d EngineDesc) identity() identity { return identity{d.Key, d.Incarnation, d.PublicKey} }

// is reports whether who has the registered identity. A registration without a public key cannot tell those of one incarnation apart.
func (who identity) is(registered identity) bool {
	if registered.public == (publicKey{}) {
		who.public = publicKey{}
	}
	return who == registered
}

// identity returns what the sender of h claims to be.
func (h *hello) identity() identity {
	who := identity{key: h.Key, incarnation: h.Incarnation}
	copy(who.public[:], h.PublicKey)
	return who
}

// A signer holds the private half of an engine's key pair.
type signer struct {
	private ed25519.PrivateKey
	public  publicKey
}

func newSigner() (s signer, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return s, fmt.Errorf("make a key pair: %w", err)
	}
	s.private = private
	copy(s.public[:], public)
	return s, nil
}

// sign signs fields for a role.
func (s signer) sign(role string, fields ...[]byte) []byte {
	return ed25519.Sign(s.private, digest(role, fields...))
}

// verify reports whether signature is that of the holder of k's private half over fields for a role.
func (k publicKey) verify(signature []byte, role string, fields ...[]byte) bool {
	return ed25519.Verify(k[:], digest(role, fields...), signature)
}
