// SPDX-License-Identifier: MIT

package bootstrap

import (
	"os"
	"testing"

	"mori/core/fabric/fabrictest"
)

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m)) }
