// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"
	"strings"
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
	w.mu.Lock()
	defer w.mu.Unlock()
	d := Description{PE: w.pes.Me, NPEs: w.pes.N, Node: w.cfg.NodeID, Heap: w.heapInfo(), Peers: make([]PeerInfo, 0, w.pes.N)}
	if fault := w.pes.Failed(); fault != nil {
		d.Fault = fault.Error()
	}
	for pe, h := range w.nodes {
		p := PeerInfo{PE: pe, Node: h.Node, PID: h.PID}
		p.Path, p.Why = w.pathTo(pe)
		d.Peers = append(d.Peers, p)
	}
	return d
}

// heapInfo needs w.mu held.
func (w *World) heapInfo() HeapInfo {
	h := HeapInfo{Mode: w.cfg.Mode.String(), On: w.placeOfHeap(), Size: w.cfg.HeapSize, Registered: w.buffersTold()}
	if a := w.arena; a != nil {
		h.Present, h.Used, h.Largest, h.Allocations = a.Size(), a.Used(), a.Largest(), a.Allocations()
		h.Free = a.Free()
		return h
	}
	h.Present, h.Used, h.Allocations = w.single, w.single, len(*w.isolated.Load())
	h.Free = w.cfg.HeapSize - w.single
	h.Largest = h.Free &^ (pageSize - 1)
	return h
}

// pathTo says how PE pe is reached, and why not better.
func (w *World) pathTo(pe int) (path, why string) {
	switch {
	case pe == w.pes.Me:
		return "self", ""
	case w.maps(pe) && w.gpu == nil:
		return "mapped", "it is on this node"
	case w.maps(pe) && w.linked[pe]:
		return "mapped", fmt.Sprintf("it is on this node, on %s%s", w.nodes[pe].GPUName, w.linkTo(pe))
	case w.maps(pe):
		why = fmt.Sprintf("the GPUs do not reach each other (%s; here %s)", w.nodes[pe].GPUName, w.gpu.Device)
	case w.nodes[pe].Node != w.nodes[w.pes.Me].Node:
		why = "it is on another node"
	case w.nodes[pe].Room != w.nodes[w.pes.Me].Room:
		why = fmt.Sprintf("it is in another container or of another user (%s; here %s), with whom memory cannot be shared", w.nodes[pe].Room, w.nodes[w.pes.Me].Room)
	default:
		why = "mapping is switched off (MORI_DISABLE_P2P)"
	}
	if w.net == nil {
		return "none", why
	}
	return w.net.Provider(), strings.Join(append([]string{why}, w.net.Why()...), "; ")
}
