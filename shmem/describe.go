// SPDX-License-Identifier: MIT

package shmem

import (
	"strings"

	"mori/shmem/internal/heap"
	"mori/shmem/internal/local"
)

// A Description describes a World.
type Description struct {
	PE    int        `json:"pe"`
	NPEs  int        `json:"npes"`
	Node  string     `json:"node"`
	Heap  HeapInfo   `json:"heap"`
	Peers []PeerInfo `json:"peers"`
	Fault string     `json:"fault,omitempty"` // why the World ended
}

// HeapInfo describes this PE's heap, in bytes. It is equal on all PEs, except for the GPU.
type HeapInfo struct {
	Mode        string `json:"mode"`
	On          string `json:"on"`      // "host memory", or this PE's GPU
	Size        uint64 `json:"size"`    // limit
	Present     uint64 `json:"present"` // present size
	Used        uint64 `json:"used"`
	Free        uint64 `json:"free"`    // used part of size
	Largest     uint64 `json:"largest"` // largest possible Malloc
	Allocations int    `json:"allocations"`
	Registered  int    `json:"registered"` // buffers
}

// PeerInfo describes how this PE reaches another PE.
type PeerInfo struct {
	PE   int    `json:"pe"`
	Node string `json:"node"`
	PID  int    `json:"pid"`
	Path string `json:"path"` // "self", "mapped", or the name of a transport
	Why  string `json:"why"`  // why this path, and not a better one
}

// Describe returns the state of the heap and the path to each PE.
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

// pathTo returns the path to PE pe, and why no better path is used.
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
