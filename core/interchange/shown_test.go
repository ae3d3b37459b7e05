// SPDX-License-Identifier: MIT

package interchange

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/proxy"
	"mori/native/abi"
)

// FuzzShown gives both links' decoders any bytes; what they take comes back.
func FuzzShown(f *testing.F) {
	for _, x := range []any{[]proxy.Shown{{Raw: make([]byte, 33), Len: 1 << 40, Host: true}, {}}, abi.NICMemory{Addr: 1, Bytes: 2, RKey: 3}} {
		b, err := json.Marshal(x)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("[" + strings.Repeat("{},", 300_000) + "{}]"))
	f.Add([]byte(`{"Addr":` + strings.Repeat("9", 900_000) + `}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, kind := range []any{[]proxy.Shown{}, abi.NICMemory{}} {
			got, again := reflect.New(reflect.TypeOf(kind)), reflect.New(reflect.TypeOf(kind))
			var err error
			decodetest.Bounded(t, len(b), func() { err = readShown(b, got.Interface()) })
			if err != nil {
				if !errors.Is(err, fabric.ErrInvalid) {
					t.Error(err)
				}
				continue
			}
			written, err := json.Marshal(got.Interface())
			if err == nil {
				err = readShown(written, again.Interface())
			}
			if err != nil || !reflect.DeepEqual(got.Interface(), again.Interface()) {
				t.Errorf("%s is read as %s, %v", b, written, err)
			}
		}
	})
}
