// SPDX-License-Identifier: MIT

package verbs_test

import (
	"testing"

	"mori/native/verbs/verbstest"
)

func TestMain(m *testing.M) { verbstest.Main(m) }
