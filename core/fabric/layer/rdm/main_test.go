// SPDX-License-Identifier: MIT

package rdm

import (
	"os"
	"testing"

	"mori/core/fabric/fabrictest"
)

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m)) }
