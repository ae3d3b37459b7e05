// SPDX-License-Identifier: MIT

//go:build !cgo

package stream

const hasZstd = false

func newCodec() codec { return nil }

func packBound(n int) int { return n }
