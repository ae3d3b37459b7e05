// SPDX-License-Identifier: MIT

package bootstrap

import (
	"os"
	"testing"

	"mori/core/fabric/fabrictest"
)

// TestMain is also what the processes run that tests start from this binary: those have childRole
// set.
func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	os.Exit(fabrictest.Main(m))
}
