// SPDX-License-Identifier: MIT

package identity

// An ID is one incarnation of an engine. A restarted engine keeps its key and gets a new
// incarnation and key pair. So it is not credited with anything that its predecessor did.
type ID struct {
	Key         string
	Incarnation uint64
	Public      PublicKey // the engine has proven to hold its private half
}

// Is reports whether who is the registered ID. A registration without a public key cannot
// distinguish engines with the same incarnation.
func (who ID) Is(registered ID) bool {
	if registered.Public == (PublicKey{}) {
		who.Public = PublicKey{}
	}
	return who == registered
}
