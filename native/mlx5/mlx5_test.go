// SPDX-License-Identifier: MIT

package mlx5

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mori/native/internal/emulate"
	"mori/native/internal/layout"
)

// openEnv has this program open a NIC of that name and print the error.
const openEnv = "MORI_TEST_OPEN_MLX5"

func TestMain(m *testing.M) {
	if name := os.Getenv(openEnv); name != "" {
		_, err := Open(name)
		fmt.Printf("%v; ENODEV %v, unsupported %v\n", err, errors.Is(err, syscall.ENODEV), errors.Is(err, errors.ErrUnsupported))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestLoad: where Debian's ibverbs-providers is, all symbols are found, and the
// error for a missing NIC is another one.
func TestLoad(t *testing.T) {
	if err := Load(); err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("the error wraps no ErrUnsupported: %v", err)
		}
		if emulate.Required("verbs") {
			t.Fatalf("MORI_REQUIRE: %v", err)
		}
		t.Skip(err)
	}
	if _, err := Open("mlx5_of_nobody"); !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "no mlx5 device") {
		t.Errorf("open a NIC that there is not: %v", err)
	}
}

// TestOpenSaysWhatIsMissing: the library, by its name, or an mlx5 device.
func TestOpenSaysWhatIsMissing(t *testing.T) {
	libraries := compiled(t)
	without := func(missing string) string {
		dir := t.TempDir()
		for _, name := range []string{"libibverbs.so.1", "libmlx5.so.1"} {
			b, err := os.ReadFile(filepath.Join(libraries, name))
			if err != nil {
				t.Fatal(err)
			}
			if name == missing {
				b = []byte("no library")
			}
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	const gone, unsupported, other = "; ENODEV true, unsupported false", "; ENODEV false, unsupported true", "; ENODEV false, unsupported false"
	for _, c := range []struct {
		what, name, libraries, devices, begins, ends string
	}{
		{"no libibverbs", "mlx5_0", without("libibverbs.so.1"), "", "load libmlx5: ", unsupported},
		{"no libmlx5", "mlx5_0", without("libmlx5.so.1"), "", "load libmlx5: ", unsupported},
		{"a kernel without RDMA", "mlx5_0", libraries, "none", "open mlx5_0 for commands: no mlx5 device: no such device", gone},
		{"no device", "mlx5_0", libraries, "", "open mlx5_0 for commands: no mlx5 device: no such device", gone},
		{"another vendor's device", "rxe0", libraries, "rxe0,irdma0", "open rxe0 for commands: no mlx5 device: no such device", gone},
		{"other devices", "mlx5_7", libraries, "mlx5_0,rxe0,mlx5_1", "open mlx5_7 for commands: no mlx5 device of that name among mlx5_0, mlx5_1: no such device", gone},
		{"no right", "mlx5_1", libraries, "mlx5_0,mlx5_1", "open mlx5_1 for commands: permission denied", other},
	} {
		env := []string{openEnv + "=" + c.name, "LD_LIBRARY_PATH=" + c.libraries}
		if c.devices != "none" {
			env = append(env, "MORI_TEST_DEVICES="+c.devices)
		}
		out := strings.TrimSpace(run(t, env, os.Args[0]))
		if !strings.HasPrefix(out, c.begins) || !strings.HasSuffix(out, c.ends) {
			t.Errorf("%s: %q, want %q and %q", c.what, out, c.begins, c.ends)
		}
		if missing, ok := strings.CutPrefix(c.what, "no lib"); ok && !strings.Contains(out, "lib"+missing+".so.1: ") {
			t.Errorf("%s: %q does not name the library", c.what, out)
		}
	}
}

// compiled compiles testdata/libraries.c to both libraries and returns their folder.
func compiled(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath(layout.Compiler()); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"libibverbs.so.1", "libmlx5.so.1"} {
		run(t, nil, layout.Compiler(), "-shared", "-fPIC", "-Wall", "-Werror", "-Wl,-soname,"+name, "-o", filepath.Join(dir, name), filepath.Join("testdata", "libraries.c"))
	}
	return dir
}

func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}
