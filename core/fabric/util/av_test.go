// SPDX-License-Identifier: MIT

package util

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"mori/core/fabric"
)

func newAV(t testing.TB, size int) *AV {
	v, err := NewAV(size)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAVSizes(t *testing.T) {
	for _, size := range []int{-1, maxAV + 1} {
		if _, err := NewAV(size); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	for _, size := range []int{0, 1, 5} {
		v := newAV(t, size)
		for i := range 40 {
			a := fabric.Addr(fmt.Sprint("peer ", i))
			n, err := v.Insert(a)
			if err != nil || len(n) != 1 || n[0] != fabric.AVAddr(i+1) {
				t.Fatalf("size %d: address %d: %v, %v", size, i, n, err)
			}
		}
		for i := range 40 {
			if a, err := v.Lookup(fabric.AVAddr(i + 1)); err != nil || a != fabric.Addr(fmt.Sprint("peer ", i)) {
				t.Fatalf("size %d: number %d: %q, %v", size, i+1, a, err)
			}
		}
	}
}

func TestAVInsert(t *testing.T) {
	v := newAV(t, 1)
	v.OnInsert(func(a fabric.Addr) error {
		if a[0] == '!' {
			return fmt.Errorf("address %q: %w", a, fabric.ErrInvalid)
		}
		return nil
	})
	for _, c := range []struct {
		name  string
		addrs []fabric.Addr
		want  []fabric.AVAddr
		err   error
	}{
		{"nothing", nil, []fabric.AVAddr{}, nil},
		{"two", []fabric.Addr{"a", "b"}, []fabric.AVAddr{1, 2}, nil},
		{"one that is there", []fabric.Addr{"c", "a"}, []fabric.AVAddr{3, 1}, nil},
		{"the same twice", []fabric.Addr{"d", "d"}, []fabric.AVAddr{4, 4}, nil},
		{"an empty one after a good one", []fabric.Addr{"e", ""}, nil, fabric.ErrInvalid},
		{"one that is refused after a good one", []fabric.Addr{"e", "!"}, nil, fabric.ErrInvalid},
		{"the good one again", []fabric.Addr{"e"}, []fabric.AVAddr{5}, nil},
	} {
		if c.name == "the good one again" && v.Find("e") != 0 {
			t.Error("an insert that failed left an address")
		}
		if got, err := v.Insert(c.addrs...); !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, got, err, c.want, c.err)
		}
	}
}

func TestAVRemove(t *testing.T) {
	v := newAV(t, 2)
	if _, err := v.Insert("a", "b", "c"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []fabric.AVAddr{0, 4, 1 << 63} {
		if err := v.Remove(n); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("remove %d: %v", n, err)
		}
		if _, err := v.Lookup(n); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("lookup %d: %v", n, err)
		}
	}
	if err := v.Remove(2); err != nil {
		t.Fatal(err)
	}
	_, err := v.Lookup(2)
	if again := v.Remove(2); !errors.Is(err, fabric.ErrInvalid) || !errors.Is(again, fabric.ErrInvalid) || v.Find("b") != 0 {
		t.Fatalf("removed: lookup %v, remove %v, find %d", err, again, v.Find("b"))
	}
	if n, err := v.Insert("d", "b"); err != nil || !slices.Equal(n, []fabric.AVAddr{2, 4}) {
		t.Fatalf("the number is not given again: %v, %v", n, err)
	}
	if a, err := v.Lookup(2); a != "d" || err != nil || v.Find("d") != 2 || v.Find("b") != 4 || v.Find("a") != 1 {
		t.Fatalf("got %q, %v, and %d, %d, %d", a, err, v.Find("d"), v.Find("b"), v.Find("a"))
	}
}

func TestAVClose(t *testing.T) {
	v := newAV(t, 2)
	closed := 0
	v.OnClose(func() { closed++ })
	if _, err := v.Insert("a"); err != nil {
		t.Fatal(err)
	}
	if err := v.Bind(); err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); !errors.Is(err, fabric.ErrBusy) || closed != 0 {
		t.Fatalf("bound: %v", err)
	}
	v.Unbind()
	for range 2 {
		if err := v.Close(); err != nil || closed != 1 {
			t.Fatalf("%v, closed %d times", err, closed)
		}
	}
	_, errInsert := v.Insert("b")
	_, errLookup := v.Lookup(1)
	for _, err := range []error{errInsert, errLookup, v.Remove(1), v.Bind()} {
		if !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	}
	if v.Find("a") != 0 {
		t.Error("a closed vector knows an address")
	}
}

// TestAVConcurrently looks addresses up while others come, go and make the table grow.
func TestAVConcurrently(t *testing.T) {
	v := newAV(t, 0)
	if _, err := v.Insert("stays"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 2 {
		start(&wg, func() {
			for i := range 500 {
				a := fabric.Addr(fmt.Sprint(w, " ", i))
				n, err := v.Insert(a)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := v.Lookup(n[0]); got != a || err != nil || v.Find(a) != n[0] {
					t.Errorf("%q is %d, which is %q, %v", a, n[0], got, err)
				}
				if i%2 == 0 {
					if err := v.Remove(n[0]); err != nil {
						t.Error(err)
					}
				}
			}
		})
		start(&wg, func() {
			for range 5000 {
				if a, err := v.Lookup(1); a != "stays" || err != nil {
					t.Errorf("number 1 is %q, %v", a, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAVDoesNotAllocate(t *testing.T) {
	v := newAV(t, 4)
	if _, err := v.Insert("a"); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		a, _ := v.Lookup(1)
		_ = v.Find(a)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
