// SPDX-License-Identifier: MIT

package pingpong

import "testing"

func TestParseFindsTheColumnOfTransfers(t *testing.T) {
	const table = `bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      1k      =1k      125k        0.06s      2.01      31.83       0.03
`
	for _, c := range []struct {
		name, out string
		want      float64
		ok        bool
	}{
		{"as it is printed", table, 31.83, true},
		{"behind a warning", "libfabric: low on memory\n" + table, 31.83, true},
		{"nothing", "", 0, false},
		{"titles alone", "bytes usec/xfer\n", 0, false},
		{"a value that is missing", "bytes #sent usec/xfer\n64 1k\n", 0, false},
		{"a value that is no number", "usec/xfer\nfast\n", 0, false},
		{"an error", "ERROR: connect: Connection refused\n", 0, false},
	} {
		got, err := parse(c.out)
		if (err == nil) != c.ok || got != c.want {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}
