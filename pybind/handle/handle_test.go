// SPDX-License-Identifier: MIT

package handle

import (
	"errors"
	"strings"
	"testing"
)

// TestIDs: an id finds its value until it is removed, and nothing after that.
func TestIDs(t *testing.T) {
	table := Table[string]{What: "pet"}
	cat, dog := table.Add("cat"), table.Add("dog")
	if v, err := table.Get(cat); v != "cat" || err != nil {
		t.Errorf("get: %q, %v", v, err)
	}
	if v, ok := table.Remove(cat); v != "cat" || !ok {
		t.Errorf("remove: %q, %v", v, ok)
	}
	if _, ok := table.Remove(cat); ok {
		t.Error("an id was removed twice")
	}
	bird := table.Add("bird") // in the row of the cat
	for _, id := range []uint64{0, cat, cat + 7, 1 << 40} {
		if v, err := table.Get(id); !errors.Is(err, ErrStale) || !strings.HasPrefix(err.Error(), "pet handle ") {
			t.Errorf("get %#x: %q, %v", id, v, err)
		}
	}
	if v, err := table.Get(bird); v != "bird" || err != nil {
		t.Errorf("get: %q, %v", v, err)
	}
	if got := table.Take(func(v string) bool { return v == "dog" }); len(got) != 1 || got[0] != "dog" {
		t.Errorf("take: %q", got)
	}
	if got := table.Clear(); len(got) != 1 || got[0] != "bird" {
		t.Errorf("clear: %q", got)
	}
	if _, err := table.Get(dog); !errors.Is(err, ErrStale) {
		t.Errorf("get after take: %v", err)
	}
}
