// SPDX-License-Identifier: MIT

package io

import (
	"mori/io/internal/backend"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/transfer"
	"mori/io/internal/watch"
)

// The errors that callers branch on.
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

// Descriptors that peers exchange out of band. See package descriptor for the fields and the packed
// form.
type (
	EngineDesc     = descriptor.Engine   // identity of an engine and address of its control plane
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
type BackendType = backend.Kind

// The backends.
const (
	BackendUnknown = backend.Unknown
	BackendXGMI    = backend.XGMI
	BackendRDMA    = backend.RDMA
	BackendTCP     = backend.TCP
	BackendFabric  = backend.Fabric
)

// BackendConfig configures RDMA and TCP backends.
type BackendConfig = backend.Config

// DefaultBackendConfig returns the documented defaults.
func DefaultBackendConfig() *BackendConfig { return backend.DefaultConfig() }

// PollCqMode selects how mori waits for a NIC's completions.
type PollCqMode = backend.PollCqMode

// The modes.
const (
	PollPolling = backend.PollPolling
	PollEvent   = backend.PollEvent
)

// Status is the state of one transfer.
type Status = transfer.Status

// NewStatus returns a status in state INIT.
func NewStatus() *Status { return transfer.NewStatus() }

// StatusCode is the state of a transfer. Codes above 10 are errors.
type StatusCode = transfer.Code

// The codes.
const (
	CodeSuccess        = transfer.Success
	CodeInit           = transfer.Init
	CodeInProgress     = transfer.InProgress
	CodeErrInvalidArgs = transfer.ErrInvalidArgs
	CodeErrNotFound    = transfer.ErrNotFound
	CodeErrRDMAOp      = transfer.ErrRDMAOp
	CodeErrBadState    = transfer.ErrBadState
	CodeErrGPUOp       = transfer.ErrGPUOp
	CodeErrBadAddress  = transfer.ErrBadAddress
)

// A Watcher is notified of statuses that leave IN_PROGRESS, for an event loop.
type Watcher = watch.Watcher

// NewWatcher returns a Watcher with an open descriptor.
func NewWatcher() (*Watcher, error) { return watch.New() }
