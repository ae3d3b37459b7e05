// SPDX-License-Identifier: MIT

package verbstest

import (
	"os"
	"testing"
)

// childEnv makes this program a child that plays a role.
const childEnv = "MORI_VERBSTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		Main(m, playRole)
	}
	Main(m)
}
