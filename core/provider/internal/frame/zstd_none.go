// SPDX-License-Identifier: MIT

//go:build !cgo

package frame

// CanCompress reports whether this build can compress and decompress.
const CanCompress = false

func newCodec() codec { return nil }

func compressBound(n int) int { return n }
