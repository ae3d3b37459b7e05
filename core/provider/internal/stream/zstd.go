// SPDX-License-Identifier: MIT

//go:build cgo

package stream

import (
	"runtime"

	"github.com/DataDog/zstd"
)

// hasZstd tells whether this build can pack and unpack. The library is C.
const hasZstd = true

// A keptCodec stays until its calls return. The binding's finalizer would else free what a call works with as soon as the Go side of the
// context is garbage, and that it may be while the C side still runs.
type keptCodec struct{ ctx zstd.Ctx }

func newCodec() codec { return keptCodec{zstd.NewCtx()} }

func (c keptCodec) CompressLevel(dst, src []byte, level int) ([]byte, error) {
	defer runtime.KeepAlive(c.ctx)
	return c.ctx.CompressLevel(dst, src, level)
}

func (c keptCodec) DecompressInto(dst, src []byte) (int, error) {
	defer runtime.KeepAlive(c.ctx)
	return c.ctx.DecompressInto(dst, src)
}

// packBound is the room that n bytes need at worst when they are packed.
func packBound(n int) int { return zstd.CompressBound(n) }
