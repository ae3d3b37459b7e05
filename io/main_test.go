// SPDX-License-Identifier: MIT

package io

import (
	"os"
	"testing"

	"mori/core/fabric/fabrictest"
	"mori/core/logging/logtest"
	"mori/native/gpu/gputest"
	"mori/native/verbs/verbstest"
)

func TestMain(m *testing.M) {
	logtest.Quiet()
	if os.Getenv(noLibraryEnv) == "" {
		verbstest.Start()
	}
	gputest.Main(m, fabrictest.Main)
}
