// SPDX-License-Identifier: MIT

package gputest

import (
	"errors"
	"time"

	"mori/native/gpu"
)

// warm has the drivers open what they keep until the process ends (contexts, peers, the way to
// other processes), so that tests that look for descriptors and threads find it there before. Where
// it fails, a test will fail too.
func warm() error {
	var all error
	for _, v := range []gpu.Vendor{gpu.CUDA, gpu.HIP} {
		driver, err := gpu.Open(v)
		if err != nil {
			continue
		}
		n, err := driver.Count()
		all = errors.Join(all, err)
		for i := range n {
			for peer := range n {
				if peer != i {
					_ = driver.Device(i).EnablePeer(peer) // not all reach each other
				}
			}
			all = errors.Join(all, warmDevice(driver.Device(i)))
		}
	}
	return all
}

func warmDevice(d gpu.Device) error {
	const n = 4 << 20
	addr, err := d.Alloc(n)
	if err != nil {
		return err
	}
	host, _, err := d.AllocHost(n)
	if err != nil {
		return errors.Join(err, d.Free(addr))
	}
	_, handle := d.IPCHandle(addr)
	stream, err := d.NewStream(0)
	if err == nil {
		err = errors.Join(stream.Copy(addr, host, n), stream.Set(addr, 0, n), finish(stream), stream.Destroy())
	}
	return errors.Join(handle, err, d.FreeHost(host), d.Free(addr))
}

func finish(stream gpu.Stream) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if done, err := stream.Done(); done || err != nil {
			return err
		}
	}
	return errors.New("a copy of 4 MiB does not end within 10 s")
}
