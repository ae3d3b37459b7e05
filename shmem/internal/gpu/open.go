// SPDX-License-Identifier: MIT

package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/proxy"
	"mori/shmem/internal/access"
)

// openQueue opens the queue if some PEs are not mapped. If it fails on some PE, all PEs continue
// without it. Collective.
func (s *Side) openQueue(ctx context.Context) error {
	pes := s.env.PEs
	if s.env.Net == nil {
		return nil
	}
	r := &queueSide{}
	s.remote = r
	mine := queueName{}
	cause := pes.AllWell(ctx, r.open(ctx, s, &mine))
	if cause == nil {
		text, _ := json.Marshal(mine) // plain fields
		blobs, err := pes.Gather(ctx, text)
		if err != nil {
			return err
		}
		cause = pes.AllWell(ctx, r.reach(ctx, s, blobs))
	}
	if cause == nil {
		return nil
	}
	r.why = fmt.Errorf("open a queue for kernels over %s: %w", s.env.Net.Provider(), cause)
	pes.Log.Warn("kernels reach only the PEs whose memory is mapped", "pe", pes.Me, "error", r.why)
	err := r.close()
	r.port, r.queue, r.nic = nil, nil, nil
	if s.env.NIC != "" { // the user requested it
		return errors.Join(r.why, err)
	}
	return errors.Join(pes.Failed(), err)
}

// Show allows kernels to use a buffer as the local side of operations on the queue. Hide withdraws
// it. The caller calls one of the two at a time.
func (s *Side) Show(addr, size uint64) (hide func() error, err error) {
	if s == nil || s.remote.device() == 0 {
		return nil, nil
	}
	r := s.remote
	buffer := fabric.Buffer{Addr: addr, Len: size}
	if access.OnDevice(addr, size) {
		p, err := device.Lookup(addr)
		if err != nil || p.Device == nil {
			return nil, err
		}
		buffer.Kind, buffer.Device = access.KindOf(p.Device), p.Device.Ordinal
	}
	region, err := r.port.Register(buffer)
	if err != nil {
		return nil, err
	}
	r.local = append(slices.Clip(r.local), proxy.Local{Buffer: buffer, Desc: region.Desc})
	hide = func() error {
		r.local = slices.DeleteFunc(slices.Clone(r.local), func(l proxy.Local) bool { return l.Addr == addr })
		return errors.Join(r.queue.SetLocal(r.local), r.port.Forget(region))
	}
	if err := r.queue.SetLocal(r.local); err != nil {
		return nil, errors.Join(err, hide())
	}
	return hide, nil
}
