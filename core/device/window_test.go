// SPDX-License-Identifier: MIT

package device

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestWindow: any number of bytes goes both ways, and what is there when it is opened stays.
func TestWindow(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		p := newPool(t, d, rand.New(rand.NewPCG(2, 2)), 3*windowBytes+5)
		at := p.mem.Addr()
		w := must[*Window](t)(d.NewWindow(at, p.mem.Bytes()))
		closing(t, w, nil)
		got := make([]byte, len(p.model))
		ok(t, w.Read(at, got))
		if !bytes.Equal(got, p.model) {
			t.Error("read other bytes")
		}
		piece := bytes.Repeat([]byte{9, 8, 7}, windowBytes/2)
		ok(t, w.Write(at+3, piece))
		copy(p.model[3:], piece)
		ok(t, w.Read(at, got))
		if !bytes.Equal(got, p.model) {
			t.Error("wrote other bytes")
		}
	})
}
