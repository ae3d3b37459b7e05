// SPDX-License-Identifier: MIT

package thread

import (
	"testing"
	"time"
)

func TestNapTakesItsTime(t *testing.T) {
	const d = 300 * time.Microsecond
	begun := time.Now()
	for range 20 {
		Nap(d)
	}
	if took := time.Since(begun); took < 19*d { // a signal may end one
		t.Errorf("20 naps of %v took %v", d, took)
	}
}
