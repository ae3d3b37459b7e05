// SPDX-License-Identifier: MIT

package shmem

import (
	"strings"

	"mori/shmem/internal/heap"
	"mori/shmem/internal/local"
)

// A Description says what a World is made of.
type Description struct {
	PE    int        `json:"pe"`
	NPEs  int        `json:"npes"`
	Node  string     `json:"node"`
	Heap  HeapInfo   `json:"heap"`
	Peers []PeerInfo `json:"peers"`
	Fault string     `json:"fault,omitempty"` // what ended the World
}

// HeapInfo is this PE's heap, in bytes. It is the same on all PEs, but for the GPU.
type HeapInfo struct {
	Mode        string `json:"mode"`
	On          string `json:"on"`      // "host memory", or this PE's GPU
	Size        uint64 `json:"size"`    // that it may have
	Present     uint64 `json:"present"` // that it has
	Used        uint64 `json:"used"`
	Free        uint64 `json:"free"`    // of size
	Largest     uint64 `json:"largest"` // that one Malloc could give
	Allocations int    `json:"allocations"`
	Registered  int    `json:"registered"` // buffers
}

// PeerInfo says how a PE is reached.
type PeerInfo struct {
	PE   int    `json:"pe"`
	Node string `json:"node"`
	PID  int    `json:"pid"`
	Path string `json:"path"` // "self", "mapped", or the name of a transport
	Why  string `json:"why"`  // this path and no better one
}

// Describe says how the heap is, and how each PE is reached.
func (w *World) Describe() Description {
	d := Description{PE: w.pes.Me, NPEs: w.pes.N, Node: w.cfg.NodeID, Heap: w.heapInfo(), Peers: make([]PeerInfo, 0, w.pes.N)}
	if fault := w.pes.Failed(); fault != nil {
		d.Fault = fault.Error()
	}
	for pe, h := range w.where.PEs {
		p := PeerInfo{PE: pe, Node: h.Node, PID: h.PID}
		p.Path, p.Why = w.pathTo(pe)
		d.Peers = append(d.Peers, p)
	}
	return d
}

func (w *World) heapInfo() HeapInfo {
	u := heap.UsageOf(w.Allocator)
	return HeapInfo{Mode: w.cfg.Mode.String(), On: w.placeOfHeap(), Size: w.cfg.HeapSize, Registered: local.Registered(w.Buffers),
		Present: u.Present, Used: u.Used, Free: u.Free, Largest: u.Largest, Allocations: u.Allocations}
}

// pathTo returns how PE pe is reached, and why not better.
func (w *World) pathTo(pe int) (path, why string) {
	mapped, why := w.where.Path(pe)
	switch {
	case pe == w.pes.Me:
		return "self", ""
	case mapped:
		return "mapped", why
	case w.net == nil:
		return "none", why
	}
	return w.net.Provider(), strings.Join(append([]string{why}, w.net.Why()...), "; ")
}
