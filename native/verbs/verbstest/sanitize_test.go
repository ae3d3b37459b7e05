// SPDX-License-Identifier: MIT

package verbstest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSanitizers has threads use the library while devices are changed under them, with the
// sanitizers looking on.
func TestSanitizers(t *testing.T) {
	NeedEmulated(t)
	if testing.Short() {
		t.Skip("compiles for some seconds")
	}
	for sanitizer, more := range map[string]string{"address,undefined": " -fno-sanitize-recover=all -O0", "thread": ""} {
		t.Run(sanitizer, func(t *testing.T) {
			flag := "-fsanitize=" + sanitizer
			if !links(t, flag) {
				t.Skipf("the compiler has no %s", flag)
			}
			dir, err := emulated.Compile(flag + more)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(dir, "stress"))
			for _, v := range os.Environ() { // the library of the program itself is the one with the sanitizer
				if !strings.HasPrefix(v, "LD_LIBRARY_PATH=") {
					cmd.Env = append(cmd.Env, v)
				}
			}
			cmd.Env = append(cmd.Env, "FAKE_VERBS_SEED=7")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "every byte was right") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// links reports whether a program can be linked with a flag: a compiler may be without its
// sanitizers' libraries.
func links(t *testing.T, flag string) bool {
	t.Helper()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.cpp")
	if err := os.WriteFile(empty, []byte("int main() { return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	compiler := append(strings.Fields(os.Getenv("CXX")), "g++")[0]
	return exec.CommandContext(ctx, compiler, flag, "-o", filepath.Join(dir, "empty"), empty).Run() == nil
}
