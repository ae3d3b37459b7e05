// SPDX-License-Identifier: MIT

package rdm

import (
	"errors"
	"strings"
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
)

func TestHandshake(t *testing.T) {
	for _, name := range []fabric.Addr{"a", "10.0.0.7:4791", "@mori-1f3c", "[::1]:80", "/run/ä ö", fabric.Addr(strings.Repeat("n", 60))} {
		b, err := makeHandshake(name, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseHandshake(b); got != name || err != nil {
			t.Errorf("%q came back as %q, %v", name, got, err)
		}
	}
	if _, err := makeHandshake(fabric.Addr(strings.Repeat("n", 61)), 64); !errors.Is(err, fabric.ErrTooSmall) {
		t.Errorf("a name that is too long: %v", err)
	}
	for _, b := range []string{"", "r", "rdm", handshakeMark, "rdm\x00a", "rdm\x02a", handshakeMark + "a\nb", handshakeMark + "a\x00", handshakeMark + "\x80", handshakeMark + "\u202e"} {
		if got, err := parseHandshake([]byte(b)); got != "" || !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("%q is a handshake of %q, %v", b, got, err)
		}
	}
}

// FuzzHandshake holds that what parses is what makeHandshake makes, and a text.
func FuzzHandshake(f *testing.F) {
	for _, b := range []string{"", handshakeMark, handshakeMark + "10.0.0.7:4791", handshakeMark + "\xff", "rdm\x02a"} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var name fabric.Addr
		var err error
		decodetest.Bounded(t, len(b), func() { name, err = parseHandshake(b) })
		if err != nil {
			if name != "" || !errors.Is(err, fabric.ErrProtocol) || strings.Contains(err.Error(), string(b)) && len(b) > 8 {
				t.Fatalf("%q, %v", name, err)
			}
			return
		}
		again, err := makeHandshake(name, len(b))
		if err != nil || string(again) != string(b) || strings.ContainsAny(string(name), "\n\r\x00\x1b") {
			t.Fatalf("%q is %q, and that is %q, %v", b, name, again, err)
		}
	})
}
