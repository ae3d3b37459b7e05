// SPDX-License-Identifier: MIT

package placement

import (
	"context"
	"fmt"
	"strings"

	"mori/core/device"
	"mori/shmem/internal/peers"
)

// gpuID identifies a GPU of a host, independent of its number in a process.
func gpuID(d *device.Device) string { return d.API + " " + d.UUID + " " + d.BusID }

// api returns the vendor's interface in a GPU's id.
func api(id string) string {
	name, _, _ := strings.Cut(id, " ")
	return name
}

// gpuOf returns PE pe's GPU as a device of this process, nil if this process does not see it.
func (m *Map) gpuOf(pe int) *device.Device {
	all, _ := device.Devices() // this PE's own GPU exists
	for _, d := range all {
		if gpuID(d) == m.PEs[pe].GPU {
			return d
		}
	}
	return nil
}

// Linked reports whether the GPUs of PE pe and of this PE can access each other.
func (m *Map) Linked(pe int) bool { return m.linked[pe] }

// Owner returns the GPU of PE pe if that PE is in this process, else nil.
func (m *Map) Owner(pe int) *device.Device {
	if m.PEs[pe].PID != m.PEs[m.pes.Me].PID {
		return nil
	}
	return m.gpuOf(pe)
}

// link determines which PEs' GPUs can access each other. All PEs compute the same result.
// Collective if heaps are on GPUs.
func (m *Map) link(ctx context.Context) error {
	if m.self.Device == nil {
		return nil
	}
	mine := make([]byte, m.pes.N)
	var cause error
	for pe := range m.pes.N {
		ok, err := m.reachesGPU(pe)
		if cause == nil {
			cause = err
		}
		if ok {
			mine[pe] = 1
		}
	}
	if err := m.pes.AllWell(ctx, cause); err != nil {
		return err
	}
	rows, err := m.pes.Gather(ctx, mine)
	if err != nil {
		return err
	}
	for pe, row := range rows {
		if len(row) != m.pes.N {
			return fmt.Errorf("PE %d reports %d GPUs, want %d: %w", pe, len(row), m.pes.N, peers.ErrMismatch)
		}
	}
	for pe := range m.pes.N {
		m.linked[pe] = rows[m.pes.Me][pe] == 1 && rows[pe][m.pes.Me] == 1
		for other := range m.pes.N {
			m.split = m.split || rows[pe][other] == 0
		}
	}
	return nil
}

// reachesGPU reports whether this PE's GPU can access PE pe's. A GPU that this process does not
// see, as when the launcher gives each process its own GPU, cannot be queried. It is mapped anyway:
// either the driver maps it, or its error has the reason.
func (m *Map) reachesGPU(pe int) (bool, error) {
	if pe == m.pes.Me {
		return true, nil
	}
	if !m.Maps(pe) {
		return false, nil
	}
	theirs := m.gpuOf(pe)
	if theirs == nil {
		return api(m.PEs[pe].GPU) == api(m.PEs[m.pes.Me].GPU), nil
	}
	r, err := m.self.Device.Reach(theirs)
	return r.Access, err
}

// linkTo describes the link between this PE's GPU and PE pe's, if known.
func (m *Map) linkTo(pe int) string {
	theirs := m.gpuOf(pe)
	switch {
	case theirs == nil:
		return ", which this process does not see"
	case theirs == m.self.Device:
		return ", this PE's own"
	}
	if r, err := m.self.Device.Reach(theirs); err == nil && r.Link != "" {
		return " over " + r.Link
	}
	return ""
}

// Unlinked lists the PEs whose GPUs this PE's GPU cannot access.
func (m *Map) Unlinked() string {
	var pes []int
	for pe, ok := range m.linked {
		if !ok {
			pes = append(pes, pe)
		}
	}
	if len(pes) == 0 {
		return "every PE here"
	}
	return peers.NameAll(pes)
}
