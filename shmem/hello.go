// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
)

// A hello is what PEs know of each other from the beginning.
type hello struct {
	Version    int // of what PEs tell each other and lay out in memory
	Node       string
	Room       string // within the node, where processes can hand each other memory
	DisableP2P bool
	Mode       Mode
	HeapSize   uint64
	ChunkSize  uint64
	GPU        string // whose memory the heap is, by the GPU's id; "": host memory
	GPUName    string
	PID        int
	Error      string // why the PE cannot be one
}

const helloVersion = 3

// room tells containers and users of a host apart: segments are handed over by a socket, which a network namespace and a user have for
// themselves.
func room() string {
	ns, _ := os.Readlink("/proc/self/ns/net") // "" where there is no such thing
	return fmt.Sprintf("%s, user %d", ns, os.Getuid())
}

// meet exchanges hellos. cause is why this PE cannot be one, or nil.
func (w *World) meet(ctx context.Context, cause error) error {
	mine := hello{Version: helloVersion, Node: w.cfg.NodeID, Room: room(), DisableP2P: w.cfg.DisableP2P, Mode: w.cfg.Mode, HeapSize: w.cfg.HeapSize, ChunkSize: w.cfg.ChunkSize, PID: os.Getpid()}
	if d := w.cfg.Device; d != nil {
		mine.GPU, mine.GPUName = gpuID(d), d.String()
	}
	if cause != nil {
		mine.Error = cause.Error()
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := w.pes.Gather(ctx, text)
	if err != nil || cause != nil {
		return errors.Join(cause, err)
	}
	w.nodes = make([]hello, w.pes.N)
	for pe, blob := range blobs {
		h := &w.nodes[pe]
		if err := peers.Decode(blob, pe, "greeting", h); err != nil {
			return err
		}
		if h.Error != "" {
			return fmt.Errorf("PE %d: %s: %w", pe, h.Error, ErrElsewhere)
		}
	}
	w.logRoom()
	return w.alike()
}

// logRoom tells if the heaps of this node could be more than its memory.
func (w *World) logRoom() {
	if w.gpu != nil {
		return
	}
	if near, n, who := w.crowd(); n > 0 {
		w.pes.Log.Info("the heaps of this node, if all are used, are more than there is", "pes", near, "heap", w.cfg.HeapSize, "limit", n, "of", who)
	}
}

// crowd is how many heaps this node has, if all of them are more than its memory: the limit, and whose it is; limit is 0 if they are not.
func (w *World) crowd() (near, limit uint64, whose string) {
	for _, h := range w.nodes {
		if h.Node == w.cfg.NodeID {
			near++
		}
	}
	n, who := memoryLimit(os.DirFS("/"))
	if n == 0 || near <= n/w.cfg.HeapSize {
		return near, 0, ""
	}
	return near, n, who
}

// alike is an error, the same on all PEs, if their heaps differ.
func (w *World) alike() error {
	for pe, h := range w.nodes { // all see the same first one that differs
		if first := w.nodes[0]; h.Version != first.Version || h.Mode != first.Mode || h.HeapSize != first.HeapSize || h.ChunkSize != first.ChunkSize || (h.GPU == "") != (first.GPU == "") {
			return fmt.Errorf("PE 0 has a heap %s, PE %d %s: %w", first.heap(), pe, h.heap(), ErrMismatch)
		}
	}
	return nil
}

func (h hello) heap() string {
	on := "host memory"
	if h.GPU != "" {
		on = "a GPU"
	}
	return fmt.Sprintf("of %d bytes on %s (%s, chunks of %d, version %d)", h.HeapSize, on, h.Mode, h.ChunkSize, h.Version)
}

// tooMuchToPin says why NICs are not shown the heap: all of it would be taken at once, and that is more than there is.
func (w *World) tooMuchToPin() string {
	if w.cfg.Mode != StaticHeap || w.gpu != nil {
		return ""
	}
	near, limit, who := w.crowd()
	if now := memAvailable(os.DirFS("/")); limit == 0 && now > 0 && near > now/w.cfg.HeapSize {
		limit, who = now, "what the machine has available"
	}
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf("it would pin %d heaps of %d bytes on this node, and %s is %d: set MORI_SHMEM_HEAP_SIZE lower, or MORI_SHMEM_MODE=vmm_heap, where only what is used is pinned",
		near, w.cfg.HeapSize, who, limit)
}

// apart reports whether there are PEs that do not map each other, and whether some of them are on
// different nodes, or could as well be. It is the same on all PEs.
func (w *World) apart() (any, far bool) {
	for _, h := range w.nodes {
		any = any || h.DisableP2P && w.pes.N > 1
		far = far || h.Node != w.nodes[0].Node || h.Room != w.nodes[0].Room
	}
	return any || far || w.split, far
}

// connect opens the network, if one is needed. Collective.
func (w *World) connect(ctx context.Context) (err error) {
	any, far := w.apart()
	if !any {
		return nil
	}
	cfg := remote.Config{Far: make([]bool, w.pes.N), Apart: far, GPU: w.gpu, Host: w.cfg.Host, QPPerPE: w.cfg.QPPerPE,
		TooMuchToPin: w.tooMuchToPin, Local: w.regionsOf}
	for pe := range cfg.Far {
		cfg.Far[pe] = !w.maps(pe) || w.gpu != nil && !w.linked[pe]
	}
	if w.gpu != nil {
		cfg.Unlinked = w.unlinked()
	}
	w.net, err = remote.Open(ctx, w.pes, cfg)
	return err
}

// regionsOf returns the regions of the block that has n bytes at addr, nil if there is none.
func (w *World) regionsOf(addr, n uint64) *remote.Regions {
	if b, _ := w.blockAt(addr, n); b != nil {
		return b.regions.Load()
	}
	return nil
}
