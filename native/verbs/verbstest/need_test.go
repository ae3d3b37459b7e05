// SPDX-License-Identifier: MIT

package verbstest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// needEnv makes this program one whose library cannot be compiled.
const needEnv = "MORI_VERBSTEST_NEED"

// TestNeedWithoutCompiler: such a test is skipped, and fails where MORI_REQUIRE has verbs.
func TestNeedWithoutCompiler(t *testing.T) {
	if os.Getenv(needEnv) != "" {
		Need(t)
		return
	}
	if Real() {
		t.Skip("nothing is compiled for real devices")
	}
	for require, want := range map[string]string{"": "--- SKIP", "vm,verbs": "MORI_REQUIRE has verbs"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestNeedWithoutCompiler$", "-test.v")
		cmd.Env = append(os.Environ(), needEnv+"=1", emulated.Folder+"=", "CXX=no-such-compiler", "MORI_REQUIRE="+require)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), want) || (err != nil) != (require != "") {
			t.Errorf("MORI_REQUIRE=%s: %v, want %q in\n%s", require, err, want, out)
		}
	}
}
