// SPDX-License-Identifier: MIT

package io

import (
	"os"
	"testing"

	"mori/core/fabric/fabrictest"
)

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m)) }
