// SPDX-License-Identifier: MIT

package peers

import (
	"encoding/json"
	"strings"
	"testing"

	"mori/core/decode/decodetest"
)

// FuzzDecode: what another PE says allocates no more than its length allows, and an error names the
// PE.
func FuzzDecode(f *testing.F) {
	type message struct {
		Version int
		Name    string
		Key     []byte
		Mapped  []int
	}
	text, _ := json.Marshal(message{1, "node", make([]byte, 64), []int{1, 2}})
	f.Add(text)
	f.Add([]byte(`{"Key":"` + strings.Repeat("A", 1000)))
	f.Add([]byte(`[1,2`))
	f.Fuzz(func(t *testing.T, blob []byte) {
		decodetest.Bounded(t, len(blob), func() {
			var m message
			if err := Decode(blob, 3, "message", &m); err != nil && !strings.HasPrefix(err.Error(), "read the message of PE 3: ") {
				t.Error(err)
			}
		})
	})
}

func TestNameAll(t *testing.T) {
	for want, pes := range map[string][]int{"PE 3": {3}, "PEs 0, 1": {0, 1}, "PEs 0-2, 5": {0, 1, 2, 5}} {
		if got := NameAll(pes); got != want {
			t.Errorf("%v: %q, want %q", pes, got, want)
		}
	}
}
