// SPDX-License-Identifier: MIT

// Stubgen writes the Python files that follow from the Go sources of pybind: the
// type stub of the extension and the version of the package.
//
//	go run ./tools/stubgen
//
// It runs in the root of the repository and refuses functions that gopy cannot
// bind, so that a signature that would be dropped in silence is found here.
package main

import (
	"fmt"
	"log"
	"os"
)

const (
	sourceDir   = "pybind"
	stubFile    = "python/mori/_native/_moricore.pyi"
	versionFile = "python/mori/_version.py"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("stubgen: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	surface, err := parseSurface(os.DirFS("."), sourceDir)
	if err != nil {
		return fmt.Errorf("parse %s: %w", sourceDir, err)
	}
	for name, text := range map[string]string{
		stubFile:    surface.stub(),
		versionFile: surface.versionModule(),
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
