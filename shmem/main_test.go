// SPDX-License-Identifier: MIT

package shmem

import (
	"os"
	"testing"

	"mori/core/fabric/fabrictest"
)

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m)) }
