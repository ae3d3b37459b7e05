// SPDX-License-Identifier: MIT

package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/internal/sys"
	"mori/native/gpu"
)

func TestMain(m *testing.M) {
	if os.Getenv(peerEnv) != "" {
		os.Exit(peerMain())
	}
	live.stack = true
	code := m.Run()
	for _, what := range Live() {
		fmt.Fprintln(os.Stderr, "left open:", what)
		code = max(code, 1)
	}
	if builds.dir != "" {
		_ = os.RemoveAll(builds.dir)
	}
	os.Exit(code)
}

// builds are the emulated drivers of testdata of native/gpu, compiled once.
var builds struct {
	once sync.Once
	dir  string
	err  error
}

// An emulated is a driver of emulated GPUs, and how it is compiled.
type emulated struct {
	vendor       Vendor
	name, define string
}

var (
	emulatedCUDA = emulated{CUDA, "CUDA", "-DFAKE_CUDA"}
	emulatedHIP  = emulated{HIP, "HIP 6", "-DFAKE_HIP=6"}
	allEmulated  = []emulated{emulatedCUDA, {HIP, "HIP 5", "-DFAKE_HIP=5"}, emulatedHIP, {HIP, "HIP 7", "-DFAKE_HIP=7"}}
)

func (f emulated) path() string { return filepath.Join(builds.dir, f.define+".so") }

// build compiles the emulated drivers.
func build(tb testing.TB) {
	tb.Helper()
	builds.once.Do(func() {
		if builds.dir, builds.err = os.MkdirTemp("", "mori-emulated-gpu"); builds.err != nil {
			return
		}
		source := filepath.Join("..", "..", "native", "gpu", "testdata", "fake.c")
		parts, _ := filepath.Glob(filepath.Join(filepath.Dir(source), "fake*"))
		for _, part := range parts { // read here, they are among what a cached result depends on
			if _, builds.err = os.ReadFile(part); builds.err != nil {
				return
			}
		}
		cc := "gcc"
		if words := strings.Fields(os.Getenv("CC")); len(words) > 0 {
			cc = words[0]
		}
		for _, f := range allEmulated {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			out, err := exec.CommandContext(ctx, cc, "-std=gnu11", "-O1", "-shared", "-fPIC", f.define, "-o", f.path(), source).CombinedOutput()
			cancel()
			if err != nil {
				builds.err = fmt.Errorf("compile the emulated driver: %w\n%s", err, out)
				return
			}
		}
	})
	if builds.err != nil {
		tb.Fatal(builds.err)
	}
}

// emulatedSystem has an emulated driver of one vendor.
func emulatedSystem(tb testing.TB, v Vendor) *system {
	build(tb)
	return emulatedSystemAt(v, map[Vendor]string{CUDA: emulatedCUDA.path(), HIP: emulatedHIP.path()}[v])
}

func emulatedSystemAt(v Vendor, path string) *system {
	return newSystem(func(w Vendor) (*gpu.Driver, error) {
		if w != v {
			return nil, fmt.Errorf("not in this test: %w", errors.ErrUnsupported)
		}
		return gpu.OpenFile(v, path)
	})
}

// A bench has devices to test on.
type bench struct {
	sys     *system
	devices []*Device
	image   []byte // with kernel fill and variable state
	env     string // what a process needs to have the same
}

// each runs a test on all emulated drivers and on the GPUs of this machine, of which it needs n.
func each(t *testing.T, n int, test func(t *testing.T, b *bench)) {
	for _, f := range allEmulated {
		t.Run("emulated "+f.name, func(t *testing.T) {
			build(t)
			s := emulatedSystemAt(f.vendor, f.path())
			devices, err := s.all()
			if err != nil {
				t.Fatal(err)
			}
			test(t, &bench{s, devices, []byte("fake code"), fmt.Sprintf("%d %s", f.vendor, f.path())})
		})
	}
	t.Run("gpu", func(t *testing.T) {
		devices := needGPUs(t, n)
		image, err := os.ReadFile(filepath.Join("testdata", "fill.ptx"))
		if err != nil {
			t.Fatal(err)
		}
		test(t, &bench{here, devices, image, "0 real"})
	})
}

// needGPUs skips the test if this machine has fewer, unless MORI_REQUIRE has gpu in its list. Only
// a conclusive answer skips.
func needGPUs(tb testing.TB, n int) []*Device {
	tb.Helper()
	devices, err := Devices()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		tb.Fatal(err)
	}
	if err == nil && len(devices) < n {
		err = fmt.Errorf("the test needs %[2]d GPUs, but the host has %[1]d", len(devices), n)
	}
	if err == nil {
		return devices
	}
	if slices.Contains(strings.Split(os.Getenv("MORI_REQUIRE"), ","), "gpu") {
		tb.Fatalf("MORI_REQUIRE has gpu: %v", err)
	}
	tb.Skip(err)
	return nil
}

func must[T any](tb testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func ok(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

type closer interface{ Close() error }

// closing closes c when the test ends.
func closing[T closer](tb testing.TB, c T, err error) T {
	tb.Helper()
	ok(tb, err)
	tb.Cleanup(func() { ok(tb, c.Close()) })
	return c
}

// settle waits for a stream, for ten seconds at most.
func settle(tb testing.TB, s *Stream) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ok(tb, s.Wait(ctx))
}

// words reads n words from an address of any kind, through pinned memory.
func words(tb testing.TB, s *Stream, addr uint64, n int) []uint32 {
	tb.Helper()
	h, err := s.Device().AllocHost(uint64(4 * n))
	ok(tb, err)
	defer func() { ok(tb, h.Close()) }()
	ok(tb, s.Copy(h.Addr(), addr, uint64(4*n)))
	settle(tb, s)
	return slices.Clone(sys.Slice[uint32](h.Addr(), n))
}

// all reports whether every word is v.
func all(words []uint32, v uint32) bool {
	return !slices.ContainsFunc(words, func(w uint32) bool { return w != v })
}
