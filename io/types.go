// SPDX-License-Identifier: MIT

package io

import (
	"fmt"

	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
)

// The causes that callers branch on.
var (
	ErrClosed      = errs.ErrClosed
	ErrInvalid     = errs.ErrInvalid
	ErrBadState    = errs.ErrBadState
	ErrNotFound    = errs.ErrNotFound
	ErrUnsupported = errs.ErrUnsupported // not possible on this machine; the text says why
	ErrUnreachable = errs.ErrUnreachable
	ErrCanceled    = errs.ErrCanceled
	ErrGPU         = errs.ErrGPU
)

// What peers exchange by other means. See package descriptor for the fields and the packed form.
type (
	EngineDesc     = descriptor.Engine   // who an engine is and where its control plane listens
	MemoryDesc     = descriptor.Memory   // a region, and the right to access it
	MemoryLocation = descriptor.Location // where a region lies
)

// The locations.
const (
	LocUnknown = descriptor.LocUnknown
	LocCPU     = descriptor.LocCPU
	LocGPU     = descriptor.LocGPU
)

// MaxKey bounds an engine's key and its node id, in bytes.
const MaxKey = descriptor.MaxKey

// NewMemoryDesc returns the empty descriptor.
func NewMemoryDesc() MemoryDesc { return descriptor.NewMemory() }

// UnpackEngineDesc decodes what EngineDesc.Pack or another implementation of the format wrote.
func UnpackEngineDesc(b []byte) (EngineDesc, error) { return descriptor.UnpackEngine(b) }

// UnpackMemoryDesc decodes what MemoryDesc.Pack or another implementation of the format wrote.
func UnpackMemoryDesc(b []byte) (MemoryDesc, error) { return descriptor.UnpackMemory(b) }

// BackendType names a family of transports. The numbers are part of the public contract.
type BackendType int

// The backends.
const (
	BackendUnknown BackendType = iota
	BackendXGMI                // peer copies between GPUs of one host
	BackendRDMA                // RDMA; without a NIC: shared memory on the same host, TCP to others
	BackendTCP                 // TCP only
	BackendFabric              // scale-up fabric between hosts
)

var backendText = [...]string{"Unknown", "XGMI", "RDMA", "TCP", "FABRIC"}

// String is the public name.
func (b BackendType) String() string {
	if b >= 0 && int(b) < len(backendText) {
		return backendText[b]
	}
	return fmt.Sprintf("BackendType(%d)", int(b))
}

// StatusCode is the state of a transfer. Codes above 10 are errors.
type StatusCode uint32

// The codes. The numbers are part of the public contract.
const (
	CodeSuccess        StatusCode = 0
	CodeInit           StatusCode = 1
	CodeInProgress     StatusCode = 2
	CodeErrInvalidArgs StatusCode = 11
	CodeErrNotFound    StatusCode = 12
	CodeErrRDMAOp      StatusCode = 13
	CodeErrBadState    StatusCode = 14
	CodeErrGPUOp       StatusCode = 15
	CodeErrBadAddress  StatusCode = 16 // appended to the contract's codes
)

var codeText = map[StatusCode]string{
	CodeSuccess: "SUCCESS", CodeInit: "INIT", CodeInProgress: "IN_PROGRESS", CodeErrInvalidArgs: "ERR_INVALID_ARGS",
	CodeErrNotFound: "ERR_NOT_FOUND", CodeErrRDMAOp: "ERR_RDMA_OP", CodeErrBadState: "ERR_BAD_STATE", CodeErrGPUOp: "ERR_GPU_OP",
	CodeErrBadAddress: "ERR_BAD_ADDRESS",
}

// String is the public name.
func (c StatusCode) String() string {
	if s, ok := codeText[c]; ok {
		return s
	}
	return fmt.Sprintf("StatusCode(%d)", uint32(c))
}

// Failed reports whether c is an error.
func (c StatusCode) Failed() bool { return c > 10 }

// PollCqMode says how a NIC's completions are awaited. Transports in software always park.
type PollCqMode int

// The modes.
const (
	PollPolling PollCqMode = iota
	PollEvent
)
