// SPDX-License-Identifier: MIT

//go:build cgo

package frame

import (
	"runtime"

	"github.com/DataDog/zstd"
)

// CanCompress reports whether this build can compress and decompress. The library is C.
const CanCompress = true

// A keptCodec is not garbage while one of its calls runs. The binding's finalizer would otherwise
// free the C context as soon as its Go side is garbage, even during a call.
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

// compressBound is the most bytes that n bytes compress to.
func compressBound(n int) int { return zstd.CompressBound(n) }
