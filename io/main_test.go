// SPDX-License-Identifier: MIT

package io

import (
	"testing"

	"mori/core/fabric/fabrictest"
	"mori/native/gpu/gputest"
	"mori/native/verbs/verbstest"
)

func TestMain(m *testing.M) {
	verbstest.Start()
	gputest.Main(m, fabrictest.Main)
}
