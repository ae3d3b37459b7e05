// SPDX-License-Identifier: MIT

package nics

import (
	"testing"

	"mori/native/gpu/gputest"
	"mori/native/verbs/verbstest"
)

func TestMain(m *testing.M) {
	verbstest.Start()
	gputest.Main(m)
}
