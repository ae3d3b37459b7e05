// SPDX-License-Identifier: MIT

// Package tools keeps go.mod stable: it names the module that only generated
// code imports, so that go mod tidy leaves it pinned.
package tools

import _ "github.com/go-python/gopy/gopyh"
