// SPDX-License-Identifier: MIT

package fabric

// A Registration is what callers know of a provider before they ask it for an Info. Each provider
// package has one; package core lists them.
type Registration struct {
	Name   string
	Scope  Scope
	Medium Medium

	// HostMemory and GPUMemory say what kind of memory a pair of ends may have. With GPUMemory one
	// end or both may be a GPU's.
	HostMemory, GPUMemory bool

	// Preference orders the providers that can serve a pair; the highest comes first.
	Preference int
}

// A Scope is how far away the peers of a provider may be.
type Scope uint8

// The scopes.
const (
	ScopeHost    Scope = iota // processes of this host
	ScopeNetwork              // any host; addresses are those of TCP, "host:port"
)

// A Medium is what carries the bytes of a provider.
type Medium uint8

// The mediums.
const (
	MediumMemory Medium = iota // a process copies
	MediumGPU                  // a GPU copies
	MediumNIC                  // RDMA NICs, which pin what is registered
	MediumSocket               // TCP
)
