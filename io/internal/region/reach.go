// SPDX-License-Identifier: MIT

package region

import (
	"errors"
	"fmt"
	"log/slog"

	"mori/core/device"
	"mori/io/internal/descriptor"
)

// Unreached returns why a GPU of this process cannot access a remote region on this host. It
// returns "" if r and remote are memory of one GPU, or of two GPUs that reach each other.
func (r *Region) Unreached(remote *descriptor.Memory) string {
	if remote.DeviceBusID == "" {
		return fmt.Sprintf("region %d of engine %q has no bus id, so its GPU is not known",
			remote.ID, remote.EngineKey)
	}
	there := deviceAt(remote.DeviceBusID)
	switch {
	case r.device == nil:
		return "the local region was registered without a GPU driver"
	case there == nil && remote.IPCHandle == ([len(remote.IPCHandle)]byte{}):
		return fmt.Sprintf("GPU %s is not visible here, and region %d of engine %q has no IPC handle; create its XGMI backend before it is registered",
			remote.DeviceBusID, remote.ID, remote.EngineKey)
	case there == nil:
		return ""
	}
	reach, err := r.device.Reach(there)
	switch {
	case err != nil:
		return err.Error()
	case !reach.Access:
		return fmt.Sprintf("no peer access from %v to %v", r.device, there)
	}
	return ""
}

// Link returns the connection between the GPUs of r and of a remote region on this host. It returns
// "" if one of them is not GPU memory, or if this process does not see the remote GPU.
func (r *Region) Link(remote *descriptor.Memory) string {
	if r.device == nil || remote.Loc != descriptor.LocGPU {
		return ""
	}
	there := deviceAt(remote.DeviceBusID)
	switch {
	case there == r.device:
		return "same GPU"
	case there == nil:
		return ""
	}
	reach, err := r.device.Reach(there)
	if err != nil || !reach.Access {
		return "no peer access"
	}
	return reach.Link
}

// deviceAt returns the GPU at a PCI address, nil if this process does not see one there.
func deviceAt(bus string) *device.Device {
	all, err := device.Devices()
	if err != nil {
		return nil
	}
	for _, d := range all {
		if d.BusID == bus {
			return d
		}
	}
	return nil
}

// export fills in the IPC handle by which other processes of this host map the allocation. Memory
// from a pool or from virtual mappings has no IPC handle and is transferred in other ways.
func export(d *descriptor.Memory, on *device.Device, log *slog.Logger) {
	if d.Size == 0 {
		return
	}
	h, err := on.ExportIPC(d.Data)
	if err != nil {
		report := log.Warn
		if errors.Is(err, device.ErrInvalid) {
			report = log.Info
		}
		report("no IPC handle", "address", fmt.Sprintf("%#x", d.Data), "device", on.String(), "reason", err)
		return
	}
	d.IPCHandle, d.IPCOffset = h.Handle, h.Offset
}
