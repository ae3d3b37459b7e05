// SPDX-License-Identifier: MIT

package verbs

import (
	"testing"

	"mori/core/fabric/fabrictest"
	"mori/native/verbs/verbstest"
)

func TestMain(m *testing.M) { verbstest.Main(m, fabrictest.Main) }
