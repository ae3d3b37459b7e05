// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"fmt"
	"strings"

	"mori/core/device"
	"mori/shmem/internal/peers"
)

// gpuID names a GPU among all of a host, whatever numbers a process gives them.
func gpuID(d *device.Device) string { return d.API + " " + d.UUID + " " + d.BusID }

// api is the vendor's interface in a GPU's id.
func api(id string) string {
	name, _, _ := strings.Cut(id, " ")
	return name
}

// gpuOf is PE pe's GPU as a device of this process, nil if this process does not see it.
func (w *World) gpuOf(pe int) *device.Device {
	all, _ := device.Devices() // there is this PE's own
	for _, d := range all {
		if gpuID(d) == w.nodes[pe].GPU {
			return d
		}
	}
	return nil
}

// link finds out which PEs' GPUs reach each other. All PEs come to the same result. Collective if heaps are on GPUs.
func (w *World) link(ctx context.Context) error {
	w.linked = make([]bool, w.pes.N)
	if w.gpu == nil {
		return nil
	}
	mine := make([]byte, w.pes.N)
	var cause error
	for pe := range w.pes.N {
		ok, err := w.reachesGPU(pe)
		if cause == nil {
			cause = err
		}
		if ok {
			mine[pe] = 1
		}
	}
	if err := w.pes.AllWell(ctx, cause); err != nil {
		return err
	}
	rows, err := w.pes.Gather(ctx, mine)
	if err != nil {
		return err
	}
	for pe, row := range rows {
		if len(row) != w.pes.N {
			return fmt.Errorf("PE %d tells of %d GPUs, want %d: %w", pe, len(row), w.pes.N, ErrMismatch)
		}
	}
	for pe := range w.pes.N {
		w.linked[pe] = rows[w.pes.Me][pe] == 1 && rows[pe][w.pes.Me] == 1
		for other := range w.pes.N {
			w.split = w.split || rows[pe][other] == 0
		}
	}
	return nil
}

// reachesGPU reports whether this PE's GPU reaches PE pe's. Of a GPU that this process does not see, as when a launcher gives each process
// its own, nothing can be asked, and it is mapped all the same: drivers map it, or the error says why not.
func (w *World) reachesGPU(pe int) (bool, error) {
	if pe == w.pes.Me {
		return true, nil
	}
	if !w.maps(pe) {
		return false, nil
	}
	theirs := w.gpuOf(pe)
	if theirs == nil {
		return api(w.nodes[pe].GPU) == api(w.nodes[w.pes.Me].GPU), nil
	}
	r, err := w.gpu.Device.Reach(theirs)
	return r.Access, err
}

// linkTo says how this PE's GPU reaches PE pe's, if that is known.
func (w *World) linkTo(pe int) string {
	theirs := w.gpuOf(pe)
	switch {
	case theirs == nil:
		return ", which this process does not see"
	case theirs == w.gpu.Device:
		return ", this PE's own"
	}
	if r, err := w.gpu.Device.Reach(theirs); err == nil && r.Link != "" {
		return " over " + r.Link
	}
	return ""
}

// unlinked names the PEs whose GPUs this PE's does not reach.
func (w *World) unlinked() string {
	var pes []int
	for pe, ok := range w.linked {
		if !ok {
			pes = append(pes, pe)
		}
	}
	if len(pes) == 0 {
		return "every PE here"
	}
	return peers.NameAll(pes)
}

// placeOfHeap says what the heap's memory is of.
func (w *World) placeOfHeap() string {
	if w.gpu == nil {
		return "host memory"
	}
	return w.gpu.Device.String()
}
