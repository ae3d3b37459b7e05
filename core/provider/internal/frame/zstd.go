// SPDX-License-Identifier: MIT

//go:build cgo

package frame

import (
	"runtime"

	"github.com/DataDog/zstd"
)

// CanCompress reports whether this build can compress and decompress. The zstd library is C code.
const CanCompress = true

// A keptCodec stays reachable while one of its calls runs. Otherwise the binding's finalizer could
// free the C context during a call, as soon as its Go object is unreachable.
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

// compressBound returns the largest compressed size of n bytes.
func compressBound(n int) int { return zstd.CompressBound(n) }
