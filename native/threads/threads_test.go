// SPDX-License-Identifier: MIT

package threads

import "testing"

func TestProbeGetsWhatThereIs(t *testing.T) {
	for _, wanted := range []int{-1, 0, 1, 40} {
		if got, err := Probe(wanted); got != max(wanted, 0) || err != nil {
			t.Errorf("%d of %d threads, %v", got, wanted, err)
		}
	}
}
