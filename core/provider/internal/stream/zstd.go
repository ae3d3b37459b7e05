// SPDX-License-Identifier: MIT

//go:build cgo

package stream

import "github.com/DataDog/zstd"

// hasZstd tells whether this build can pack and unpack. The library is C.
const hasZstd = true

func newCodec() codec { return zstd.NewCtx() }

// packBound is the room that n bytes need at worst when they are packed.
func packBound(n int) int { return zstd.CompressBound(n) }
