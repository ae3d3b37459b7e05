// SPDX-License-Identifier: MIT

package decode

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"mori/core/decode/decodetest"
)

type wide struct {
	Name   string
	Raw    []byte
	Hash   [16]byte
	Number uint64
	Ends   [][]byte
	Parts  []part
}

type part struct {
	File      *int `json:"-"`
	Kind, Why string
	Sizes     [20]uint64
	Deep      []int
}

func TestJSONReadsWhatTheLibraryWrites(t *testing.T) {
	for _, want := range []wide{
		{},
		{Name: `a "quoted", [bracketed] \ name`, Raw: []byte{1, 2}, Hash: [16]byte{7}, Number: math.MaxUint64, Ends: [][]byte{{1}, nil},
			Parts: []part{{Kind: "k", Deep: []int{1, -2}}, {}}},
		{Raw: make([]byte, 500_000), Ends: make([][]byte, 500), Parts: make([]part, 200)},
	} {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got wide
		decodetest.Bounded(t, len(b), func() { err = JSON(b, &got) })
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%.200s: %v", b, err)
		}
	}
	for _, text := range []string{`null`, ` {"Parts":null,"name":"x"} `, `{"Unknown":{"a":[1,2]}}`} {
		if err := JSON([]byte(text), new(wide)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestJSONRefuses(t *testing.T) {
	many := func(open, one, end string, n int) string { return open + strings.Repeat(one+",", n) + one + end }
	for name, text := range map[string]string{
		"nothing": "", "half": `{"Name":"`, "two values": `{} {}`, "another type": `[1]`, "not UTF-8": `{"Name":"` + strings.Repeat("\xff", 300_000) + `"}`,
		"parts that say nothing": many(`{"Parts":[`, `{}`, `]}`, 300_000), "parts that are nothing": many(`{"Parts":[`, `null`, `]}`, 200_000),
		"ends that say nothing": many(`{"Ends":[`, `""`, `]}`, 300_000), "the same list again": many(`{`, `"Ends":[""]`, `}`, 80_000),
		"numbers in a part": `{"Parts":[{"Deep":` + many(`[`, `1`, `]`, 400_000) + `}]}`, "a number of 900 kB": `{"Number":` + strings.Repeat("1", 900_000) + `}`,
		"a number for a name": `{"Name":` + strings.Repeat("1", 900_000) + `}`, "arrays in one another": strings.Repeat("[", 100_000),
		"more than a MiB": `{"Name":"` + strings.Repeat("x", MaxJSON) + `"}`,
	} {
		decodetest.Bounded(t, len(text), func() {
			if err := JSON([]byte(text), new(wide)); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: %.200v, want %v", name, err, ErrMalformed)
			}
		})
	}
}

func FuzzJSON(f *testing.F) {
	whole, _ := json.Marshal(wide{Name: "n", Raw: []byte("raw"), Ends: [][]byte{{1}}, Parts: []part{{Deep: []int{1}}}})
	f.Add(whole)
	f.Add([]byte(`{"Parts":[{},{},{"Why":"\u00e9\"","Deep":[1,2,3]}],"Ends":["AQ=="]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, same wide
		var err error
		decodetest.Bounded(t, len(b), func() { err = JSON(b, &got) })
		if err == nil {
			if err = json.Unmarshal(b, &same); err != nil || !reflect.DeepEqual(got, same) {
				t.Fatalf("%s is %+v, and the library says %+v, %v", b, got, same, err)
			}
		}
	})
}
