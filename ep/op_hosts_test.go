// SPDX-License-Identifier: MIT

package ep

import "testing"

func TestDispatchAndCombineBetweenHosts(t *testing.T) {
	t.Run("each on its own", func(t *testing.T) {
		together(t, smallConfig(3), Options{}, []string{"a", "b", "c"}, journey(15))
	})
	t.Run("two and two", func(t *testing.T) {
		together(t, smallConfig(4), Options{}, []string{"a", "b", "a", "b"}, journey(15))
	})
}
