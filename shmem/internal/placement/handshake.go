// SPDX-License-Identifier: MIT

package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"mori/core/device"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
)

// A PE is what PEs send each other in the handshake.
type PE struct {
	Version    int // version of the messages and memory layouts of PEs
	Node       string
	Room       string // id within the node of processes that can share memory
	DisableP2P bool
	Mode       heap.Mode
	HeapSize   uint64
	ChunkSize  uint64
	GPU        string // id of the GPU of the heap; "": host memory
	GPUName    string
	PID        int
	Error      string // why the process cannot be a PE
}

const version = 3

// A Self describes this PE. Device is the GPU of its heap, nil for host memory.
type Self struct {
	NodeID              string
	DisableP2P          bool
	Mode                heap.Mode
	HeapSize, ChunkSize uint64
	Device              *device.Device
}

// A Map records where the PEs are, and which of them share memory. It implements heap.Where.
type Map struct {
	PEs []PE

	pes    *peers.Group
	self   Self
	linked []bool // by PE: the GPUs of that PE and this one can access each other
	split  bool   // some PEs have GPUs that cannot access each other
}

var _ heap.Where = (*Map)(nil)

// room identifies the container and user of this process. Segments are passed over a socket, which
// belongs to a network namespace and a user.
func room() string {
	ns, _ := os.Readlink("/proc/self/ns/net") // "" if the file does not exist
	return fmt.Sprintf("%s, user %d", ns, os.Getuid())
}

// Exchange is the handshake of all PEs. cause is why this process cannot be a PE, or nil.
// Collective.
func Exchange(ctx context.Context, pes *peers.Group, self Self, cause error) (*Map, error) {
	m := &Map{pes: pes, self: self, linked: make([]bool, pes.N)}
	if err := m.handshake(ctx, cause); err != nil {
		return nil, err
	}
	return m, m.link(ctx)
}

func (m *Map) handshake(ctx context.Context, cause error) error {
	mine := PE{Version: version, Node: m.self.NodeID, Room: room(), DisableP2P: m.self.DisableP2P, Mode: m.self.Mode,
		HeapSize: m.self.HeapSize, ChunkSize: m.self.ChunkSize, PID: os.Getpid()}
	if d := m.self.Device; d != nil {
		mine.GPU, mine.GPUName = gpuID(d), d.String()
	}
	if cause != nil {
		mine.Error = cause.Error()
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := m.pes.Gather(ctx, text)
	if err != nil || cause != nil {
		return errors.Join(cause, err)
	}
	m.PEs = make([]PE, m.pes.N)
	for pe, blob := range blobs {
		h := &m.PEs[pe]
		if err := peers.Decode(blob, pe, "greeting", h); err != nil {
			return err
		}
		if h.Error != "" {
			return fmt.Errorf("PE %d: %s: %w", pe, h.Error, peers.ErrElsewhere)
		}
	}
	m.logCrowd()
	return m.alike()
}

// logCrowd warns if the heaps of this node could exceed its memory.
func (m *Map) logCrowd() {
	if m.self.Device != nil {
		return
	}
	if near, n, who := m.crowd(); n > 0 {
		m.pes.Log.Info("the heaps of this node are larger than its memory", "pes", near, "heap", m.self.HeapSize, "limit", n, "of", who)
	}
}

// crowd returns the number of heaps on this node, and the memory limit with its source if all heaps
// together exceed it; otherwise limit is 0.
func (m *Map) crowd() (near, limit uint64, whose string) {
	for _, h := range m.PEs {
		if h.Node == m.self.NodeID {
			near++
		}
	}
	n, who := heap.MemoryLimit(os.DirFS("/"))
	if n == 0 || near <= n/m.self.HeapSize {
		return near, 0, ""
	}
	return near, n, who
}

// alike returns an error, the same on all PEs, if their heaps differ.
func (m *Map) alike() error {
	for pe, h := range m.PEs { // all find the same first difference
		if first := m.PEs[0]; h.Version != first.Version || h.Mode != first.Mode || h.HeapSize != first.HeapSize || h.ChunkSize != first.ChunkSize || (h.GPU == "") != (first.GPU == "") {
			return fmt.Errorf("PE 0 has a heap %s, PE %d %s: %w", first.heap(), pe, h.heap(), peers.ErrMismatch)
		}
	}
	return nil
}

func (h PE) heap() string {
	on := "host memory"
	if h.GPU != "" {
		on = "a GPU"
	}
	return fmt.Sprintf("of %d bytes on %s (%s, chunks of %d, version %d)", h.HeapSize, on, h.Mode, h.ChunkSize, h.Version)
}

// TooMuchToPin returns why NICs cannot pin the heap, "" if they can. Pinning takes the full size of
// the heap at once, which may exceed the available memory.
func (m *Map) TooMuchToPin() string {
	if m.self.Mode != heap.StaticHeap || m.self.Device != nil {
		return ""
	}
	near, limit, who := m.crowd()
	if now := heap.MemAvailable(os.DirFS("/")); limit == 0 && now > 0 && near > now/m.self.HeapSize {
		limit, who = now, "the machine's available memory"
	}
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf("it would pin %d heaps of %d bytes on this node, and %s is %d: reduce MORI_SHMEM_HEAP_SIZE, or set MORI_SHMEM_MODE=vmm_heap, which pins only allocated memory",
		near, m.self.HeapSize, who, limit)
}

// Maps reports whether this PE maps the host memory of PE pe.
func (m *Map) Maps(pe int) bool {
	mine, its := &m.PEs[m.pes.Me], &m.PEs[pe]
	return pe == m.pes.Me || its.Node == mine.Node && its.Room == mine.Room && !mine.DisableP2P && !its.DisableP2P
}

// Apart reports whether some PEs do not map each other, and whether some of them are on different
// nodes or treated so. The result is the same on all PEs.
func (m *Map) Apart() (any, far bool) {
	for _, h := range m.PEs {
		any = any || h.DisableP2P && m.pes.N > 1
		far = far || h.Node != m.PEs[0].Node || h.Room != m.PEs[0].Room
	}
	return any || far || m.split, far
}

// Split reports whether some PEs have GPUs that cannot access each other.
func (m *Map) Split() bool { return m.split }

// Far returns, by PE, whether its heap is not mapped here.
func (m *Map) Far() []bool {
	far := make([]bool, m.pes.N)
	for pe := range far {
		far[pe] = !m.Maps(pe) || m.self.Device != nil && !m.linked[pe]
	}
	return far
}

// Path reports whether the heap of PE pe is mapped here, and the reason.
func (m *Map) Path(pe int) (mapped bool, why string) {
	mine, its := &m.PEs[m.pes.Me], &m.PEs[pe]
	switch {
	case pe == m.pes.Me:
		return true, ""
	case m.Maps(pe) && m.self.Device == nil:
		return true, "it is on this node"
	case m.Maps(pe) && m.linked[pe]:
		return true, fmt.Sprintf("it is on this node, on %s%s", its.GPUName, m.linkTo(pe))
	case m.Maps(pe):
		return false, fmt.Sprintf("the GPUs do not reach each other (%s; here %s)", its.GPUName, m.self.Device)
	case its.Node != mine.Node:
		return false, "it is on another node"
	case its.Room != mine.Room:
		return false, fmt.Sprintf("it is in another container or of another user (%s; here %s), so memory cannot be shared", its.Room, mine.Room)
	}
	return false, "mapping is switched off (MORI_DISABLE_P2P)"
}
