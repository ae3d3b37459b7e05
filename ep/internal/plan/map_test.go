// SPDX-License-Identifier: MIT

package plan

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"mori/core/decode/decodetest"
)

// same reports whether all views of two plans are equal.
func same(a, b *Plan) bool {
	if a.Tokens() != b.Tokens() || a.Len() != b.Len() || !slices.Equal(a.Counts(), b.Counts()) {
		return false
	}
	for d := range a.Counts() {
		if !slices.Equal(a.Block(d), b.Block(d)) || len(a.Block(d)) > 0 && a.Base(d) != b.Base(d) {
			return false
		}
	}
	for t := range a.Tokens() {
		if !slices.Equal(rowsOf(a, t), rowsOf(b, t)) {
			return false
		}
	}
	return true
}

func rowsOf(p *Plan, t int) (rows [][2]int) {
	for d, slot := range p.Rows(t) {
		rows = append(rows, [2]int{d, slot})
	}
	return rows
}

func TestMapMakesThePlanAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	refused := 0
	for round := range 2000 {
		c, routings, name := draw(r)
		plans, _ := dispatched(t, c, routings)
		s := r.IntN(c.WorldSize)
		slots := make([]int32, len(routings[s]))
		plans[s].Map(slots)
		again := New(c.of(s))
		if err := again.Build(routings[r.IntN(c.WorldSize)]); err != nil { // what it was before must not matter
			t.Fatal(err)
		}
		if err := again.FromMap(slots); err != nil {
			t.Fatalf("round %d, %s: %v", round, name, err)
		}
		if !same(again, plans[s]) {
			t.Fatalf("round %d, %s: %v gives another plan", round, name, slots)
		}
		if len(slots) == 0 {
			continue
		}
		slots[r.IntN(len(slots))] = r.Int32N(c.NoSlot()+2) - 1
		if !checkFromMap(t, c, slots) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no map was refused")
	}
}

// checkFromMap reports whether the map was taken. If it was, it must be a map that Map could have
// made.
func checkFromMap(t *testing.T, c Config, slots []int32) bool {
	p := New(c)
	var err error
	decodetest.Bounded(t, 4*len(slots), func() { err = p.FromMap(slots) })
	if err != nil {
		if !errors.Is(err, ErrMap) && !errors.Is(err, ErrShape) || p.Tokens() != 0 || p.Len() != 0 {
			t.Fatalf("%v: %v, and %d tokens", slots, err, p.Tokens())
		}
		return false
	}
	next := map[int]int{}
	for token := range p.Tokens() {
		for d, slot := range p.Rows(token) {
			if slot < 0 || slot >= c.MaxRecv() {
				t.Fatalf("%v: slot %d of rank %d", slots, slot, d)
			}
			if want, ok := next[d]; ok && slot != want {
				t.Fatalf("%v: slot %d of rank %d, want %d", slots, slot, d, want)
			}
			next[d] = slot + 1
		}
	}
	again := make([]int32, len(slots))
	p.Map(again)
	if !slices.Equal(again, slots) {
		t.Fatalf("%v came back as %v", slots, again)
	}
	return true
}

func TestFromMapRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots []int32 // 2 ranks with room for 8 rows, 2 choices; 16 is no slot
	}{
		{"a negative slot", []int32{-1, 16}},
		{"a slot behind the last", []int32{17, 16}},
		{"two slots of one rank for one token", []int32{3, 4}},
		{"a slot left out", []int32{3, 16, 5, 16}},
		{"a slot used twice", []int32{3, 16, 3, 16}},
		{"slots that go back", []int32{4, 16, 3, 16}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if checkFromMap(t, config(0, 2, 3, 2, 4), c.slots) {
				t.Errorf("%v was taken", c.slots)
			}
		})
	}
}

func FuzzFromMap(f *testing.F) {
	seed := func(world, topk uint8, slots ...int32) {
		raw := []byte{}
		for _, slot := range slots {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(slot))
		}
		f.Add(world, topk, raw)
	}
	seed(2, 2, 0, 12, 24, 1, 13, 2)
	seed(2, 2, 3, 4)
	seed(1, 1, -1)
	seed(3, 1, 5, 6, 36, 7)
	seed(70, 3, 0, 12, 829)
	f.Fuzz(func(t *testing.T, world, topk uint8, raw []byte) {
		c := config(0, 1+int(world)%80, 2, 1+int(topk)%9, 12)
		slots := make([]int32, len(raw)/4)
		for i := range slots {
			slots[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		checkFromMap(t, c, slots)
	})
}
