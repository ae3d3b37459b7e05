// SPDX-License-Identifier: MIT

package io

import "mori/io/internal/descriptor"

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
