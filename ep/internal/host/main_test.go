// SPDX-License-Identifier: MIT

package host

import (
	"os"
	"testing"

	"mori/core/logging/logtest"
)

func TestMain(m *testing.M) {
	logtest.Quiet()
	os.Exit(m.Run())
}
