// SPDX-License-Identifier: MIT

// Package formattest has helpers that the tests of queue formats share.
package formattest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Unhex returns the bytes of hexadecimal digits with spaces between them. It panics on other text.
func Unhex(digits string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		panic(fmt.Sprintf("decode %q: %v", digits, err))
	}
	return b
}

// Refused checks that parse rejects entries of size bytes that begin with the digits of each case,
// and an entry that is too short, with an error that wraps want.
func Refused(t *testing.T, size int, want error, parse func(b []byte) error, cases map[string]string) {
	t.Helper()
	for name, digits := range cases {
		b := make([]byte, size)
		copy(b, Unhex(digits))
		if err := parse(b); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := parse(make([]byte, size-1)); !errors.Is(err, want) {
		t.Errorf("too few bytes: %v", err)
	}
}

// Rewritten checks that writing a parsed entry, parsing it and writing it again results in the same
// bytes.
func Rewritten[E any](t *testing.T, size int, e *E, put func(*E, []byte), parse func(*E, []byte) error) {
	t.Helper()
	var again E
	first, second := make([]byte, size), make([]byte, size)
	put(e, first)
	err := parse(&again, first)
	if err == nil {
		put(&again, second)
	}
	if err != nil || !bytes.Equal(first, second) {
		t.Fatalf("%+v came back as %+v: %v", *e, again, err)
	}
}

// Same checks that a parsed completion stays the same when it is written and parsed again.
func Same[C comparable](t *testing.T, size int, c C, put func(C, []byte), parse func([]byte) C) {
	t.Helper()
	b := make([]byte, size)
	put(c, b)
	if again := parse(b); again != c {
		t.Fatalf("%+v came back as %+v", c, again)
	}
}

// SameBell checks that a doorbell is either rejected or keeps its value when it is written again.
func SameBell[B any](t *testing.T, v uint64, parse func(uint64) (B, error), value func(B) uint64) {
	t.Helper()
	if bell, err := parse(v); err == nil && value(bell) != v {
		t.Fatalf("%#x is %+v", v, bell)
	}
}
