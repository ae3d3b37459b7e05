// SPDX-License-Identifier: MIT

package emulate

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
//
// static void *found(const char *name) { return dlsym(RTLD_DEFAULT, name); }
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// compileTime bounds the compilation of a library on a busy machine.
const compileTime = 5 * time.Minute

// A Compiler is the variable that names one, and its name if that is not set.
type Compiler struct{ variable, otherwise string }

// The compilers of C and C++.
var (
	CC  = Compiler{"CC", "gcc"}
	CXX = Compiler{"CXX", "g++"}
)

// A Library is what an emulated library is made of. Paths are relative to the folder of go.mod.
type Library struct {
	What      string // what messages call it
	File      string // the name that it is opened by
	Folder    string // the variable from which processes that a test starts learn where it is
	Script    string // compiles it, or finds it compiled, and prints its folder
	Sources   []string
	Compilers []Compiler

	// Steering are the variables that steer it. They are there from the start: C code
	// may read the environment while a test changes variables that exist, and not while it adds some.
	Steering []string
}

// Main is a TestMain: it calls start, runs the tests by run, by default m.Run, and
// exits.
func Main(m *testing.M, start func(), run ...func(*testing.M) int) {
	start()
	code := 0
	if len(run) > 0 {
		code = run[0](m)
	} else {
		code = m.Run()
	}
	os.Exit(code)
}

// Required reports whether MORI_REQUIRE has what in its list: a test may not be skipped for want of
// it.
func Required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("MORI_REQUIRE"), ","), what)
}

// Root is the folder of go.mod above the package that is tested.
func Root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return "", errors.Join(errors.New("no go.mod above the working directory: emulated devices are compiled from the source tree"), err)
}

// Start compiles the library with the script's arguments, or takes what the process that started
// this one has, and loads it. Processes that are started from now on find it by LD_LIBRARY_PATH.
func (l Library) Start(args ...string) error {
	for _, name := range l.Steering {
		if _, ok := os.LookupEnv(name); !ok {
			_ = os.Setenv(name, "")
		}
	}
	dir := os.Getenv(l.Folder)
	if dir == "" {
		var err error
		if dir, err = l.Compile(args...); err != nil {
			return err
		}
		_ = os.Setenv(l.Folder, dir)
		_ = os.Setenv("LD_LIBRARY_PATH", strings.TrimSuffix(dir+":"+os.Getenv("LD_LIBRARY_PATH"), ":"))
	}
	return l.load(dir)
}

// Compile makes the library with the script's arguments, or finds it made, and returns its folder.
func (l Library) Compile(args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	for _, c := range l.Compilers {
		if _, err := exec.LookPath(append(strings.Fields(os.Getenv(c.variable)), c.otherwise)[0]); err != nil {
			return "", fmt.Errorf("the host has no device, and emulating the %s failed: %w", l.What, err)
		}
	}
	for _, dir := range l.Sources {
		read(filepath.Join(root, dir))
	}
	ctx, cancel := context.WithTimeout(context.Background(), compileTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{filepath.Join(root, l.Script)}, args...)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		fmt.Fprintf(os.Stderr, "compile the %s: %v\n%s", l.What, err, complaint.String())
		os.Exit(2)
	}
	return strings.TrimSpace(string(out)), nil
}

// read opens the sources, so that they are among what a cached result of go test depends on.
func read(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			_, _ = os.ReadFile(path)
		}
		return nil
	})
}

// load opens the library for all of the process: who asks for it by its name then finds this one.
func (l Library) load(dir string) error {
	name := C.CString(filepath.Join(dir, l.File))
	defer C.free(unsafe.Pointer(name))
	if C.dlopen(name, C.RTLD_NOW|C.RTLD_GLOBAL) == nil {
		return fmt.Errorf("load the %s: %s", l.What, C.GoString(C.dlerror()))
	}
	return nil
}

// Symbol is a function of a library that is loaded. It panics without it: another library was
// loaded than the tests are for.
func Symbol(name string) unsafe.Pointer {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	f := C.found(c)
	if f == nil {
		panic("no emulated library has " + name)
	}
	return f
}
