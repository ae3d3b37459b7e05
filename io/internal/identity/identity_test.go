// SPDX-License-Identifier: MIT

package identity

import (
	"bytes"
	"testing"
)

func TestIsComparesPublicKeysIfOneIsRegistered(t *testing.T) {
	who := ID{Key: "a", Incarnation: 5, Public: PublicKey{1}}
	for _, c := range []struct {
		registered ID
		want       bool
	}{
		{ID{Key: "a", Incarnation: 5, Public: PublicKey{1}}, true},
		{ID{Key: "a", Incarnation: 5}, true},
		{ID{Key: "a", Incarnation: 5, Public: PublicKey{2}}, false},
		{ID{Key: "a", Incarnation: 6}, false},
		{ID{Key: "b", Incarnation: 5, Public: PublicKey{1}}, false},
	} {
		if got := who.Is(c.registered); got != c.want {
			t.Errorf("%+v is %+v: %v, want %v", who, c.registered, got, c.want)
		}
	}
}

// A signature and a proof are valid only for the fields and the role that they were made for. They
// are invalid even if the same bytes are split into other fields.
func TestSignaturesAndProofsCoverRoleAndFields(t *testing.T) {
	s, err := NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	secret := Secret("open sesame")
	fields := [][]byte{[]byte("ab"), []byte("c")}
	signature, proof := s.Sign("role", fields...), secret.Proof("role", fields...)
	for name, c := range map[string]struct {
		role   string
		fields [][]byte
		want   bool
	}{
		"the same":         {"role", [][]byte{[]byte("ab"), []byte("c")}, true},
		"another role":     {"other", fields, false},
		"another division": {"role", [][]byte{[]byte("a"), []byte("bc")}, false},
		"a field more":     {"role", append(fields, nil), false},
	} {
		if got := s.Public.Verify(signature, c.role, c.fields...); got != c.want {
			t.Errorf("%s: the signature holds: %v", name, got)
		}
		if got := secret.Proves(proof, c.role, c.fields...); got != c.want {
			t.Errorf("%s: the proof holds: %v", name, got)
		}
	}
	if other, _ := NewSigner(); other.Public.Verify(signature, "role", fields...) {
		t.Error("the signature holds for another key")
	}
	if Secret("open barley").Proves(proof, "role", fields...) {
		t.Error("the proof holds for another secret")
	}
	if Secret("").Proof("role") != nil || !Secret("").Proves([]byte("any"), "role") {
		t.Error("an empty secret wants proof")
	}
	if bytes.Equal(proof, signature) {
		t.Error("the proof is the signature")
	}
}
