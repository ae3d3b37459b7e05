// SPDX-License-Identifier: MIT

package verbs_test

import (
	"testing"

	"mori/native/verbs"
)

func need(tb testing.TB) {
	tb.Helper()
	if err := verbs.Load(); err != nil {
		tb.Skip(err)
	}
	if d, err := verbs.Devices(); err != nil || len(d) == 0 {
		tb.Skip("no device: ", err)
	}
}
