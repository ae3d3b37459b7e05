// SPDX-License-Identifier: MIT

package conn

import (
	"testing"

	"mori/core/fabric/fabrictest"
	"mori/native/gpu/gputest"
)

func TestMain(m *testing.M) { gputest.Main(m, fabrictest.Main) }
