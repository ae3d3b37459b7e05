// SPDX-License-Identifier: MIT

// Package tools keeps go.mod stable: it names the modules that only generated
// code imports, so that go mod tidy leaves them pinned.
package tools

import (
	_ "github.com/go-python/gopy/gopyh"
	_ "github.com/vmihailenco/msgpack/v5"
	_ "golang.org/x/sys/unix"
)
