// SPDX-License-Identifier: MIT

package peers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"mori/core/decode/decodetest"
)

// FuzzDecode: what another PE says allocates no more than its length allows, and an error names the
// PE.
func FuzzDecode(f *testing.F) {
	type chunk struct {
		Socket string
		Secret [16]byte
		Bytes  uint64
	}
	type message struct {
		Version int
		Name    string
		Key     []byte
		Mapped  []int
		Ends    [][]byte
		Chunks  []chunk
	}
	largest := message{1, "node", make([]byte, 64), make([]int, 1024), make([][]byte, 1024), make([]chunk, 512)}
	text, _ := json.Marshal(largest)
	f.Add(text)
	for _, hostile := range []string{`{"Chunks":[%s{}]}`, `{"Ends":[%s""]}`, `{"Mapped":[%s1]}`, `[%s{}]`} {
		f.Add(fmt.Appendf(nil, hostile, strings.Repeat("{},", 300_000)))
		f.Add(fmt.Appendf(nil, hostile, strings.Repeat("null,", 200_000)))
	}
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
