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

	// Diagnose says how the provider would reach peers from this host. It may load the drivers of
	// devices. It makes nothing on any device and changes nothing.
	Diagnose func(Peers) Diagnosis
}

// Peers are a kind of peer.
type Peers struct {
	OtherHost bool
	GPUMemory bool // at one end or both
}

// A Diagnosis is how a provider would reach a kind of peer.
type Diagnosis struct {
	Path    string   // the provider's name, with how it moves bytes if it has several ways; "" = not at all
	Reasons []string // why it cannot, or why it has no better path
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
