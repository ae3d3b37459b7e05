// SPDX-License-Identifier: MIT

package identity

// An ID is one incarnation of an engine. An engine that is restarted keeps its key and gets a new
// incarnation and key pair, so that nothing its predecessor did counts as its own.
type ID struct {
	Key         string
	Incarnation uint64
	Public      PublicKey // whose private half the engine has proven to hold
}

// Is reports whether who has the registered ID. A registration without a public key cannot
// distinguish engines with the same incarnation.
func (who ID) Is(registered ID) bool {
	if registered.Public == (PublicKey{}) {
		who.Public = PublicKey{}
	}
	return who == registered
}
