// SPDX-License-Identifier: MIT

package fabric

// A Registration describes a provider before a caller asks it for an Info. Each provider package
// has one; package core lists them.
type Registration struct {
	Name   string
	Scope  Scope
	Medium Medium

	// HostMemory and GPUMemory say which memory the two ends may have. With GPUMemory, one or both
	// ends may be GPU memory.
	HostMemory, GPUMemory bool

	// Preference ranks the providers that can serve the same pair; higher is better.
	Preference int

	// Diagnose says how the provider would reach peers from this host. It may load device drivers, but
	// creates nothing on a device and changes nothing.
	Diagnose func(Peers) Diagnosis
}

// Peers describes a class of peers.
type Peers struct {
	OtherHost bool
	GPUMemory bool // at one end or both
}

// A Diagnosis says how a provider would reach a class of peers.
type Diagnosis struct {
	Path    string   // the provider's name, with its data path if it has several; "" = unreachable
	Reasons []string // why it cannot reach them, or not by a better path
}

// A Scope is the distance of the peers that a provider can reach.
type Scope uint8

// The scopes.
const (
	ScopeHost    Scope = iota // processes on this host
	ScopeNetwork              // any host; addresses are TCP's, "host:port"
)

// A Medium is the hardware or mechanism that moves a provider's bytes.
type Medium uint8

// The mediums.
const (
	MediumMemory Medium = iota // a process copies
	MediumGPU                  // a GPU copies
	MediumNIC                  // RDMA NICs, which pin registered memory
	MediumSocket               // TCP
)
