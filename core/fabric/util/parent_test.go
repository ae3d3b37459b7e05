// SPDX-License-Identifier: MIT

package util

import (
	"errors"
	"testing"

	"mori/core/fabric"
)

func TestParent(t *testing.T) {
	var p Parent
	cq := newCQ(t, 1)
	eq, err := NewEQ(1)
	if err != nil {
		t.Fatal(err)
	}
	cq.OnClose(p.Leave)
	eq.OnClose(p.Leave)
	if err := errors.Join(p.Adopt(), p.Adopt()); err != nil {
		t.Fatal(err)
	}
	for _, child := range []interface{ Close() error }{cq, eq} {
		if first, err := p.Close(); first || !errors.Is(err, fabric.ErrBusy) {
			t.Fatalf("with children: %v, %v", first, err)
		}
		for range 2 {
			if err := child.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 2 {
		if first, err := p.Close(); first != (i == 0) || err != nil {
			t.Fatalf("close %d: %v, %v", i, first, err)
		}
	}
	if err := p.Adopt(); err != fabric.ErrClosed {
		t.Fatalf("a child after close: %v", err)
	}
}
