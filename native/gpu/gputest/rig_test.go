// SPDX-License-Identifier: MIT

package gputest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mori/native/gpu"
)

// A rig is a device with a stream and pinned memory, all of which the test's end gives back.
type rig struct {
	testing.TB
	gpu.Device
	stream gpu.Stream
	host   uint64 // hostBytes of pinned memory
}

const hostBytes = 1 << 16

func newRig(tb testing.TB, ordinal int) *rig {
	tb.Helper()
	Need(tb, ordinal+1)
	d, err := driver()
	if err != nil {
		tb.Fatal(err)
	}
	r := &rig{TB: tb, Device: d.Device(ordinal)}
	r.stream = r.newStream()
	host, _, err := r.AllocHost(hostBytes)
	r.ok(err)
	tb.Cleanup(func() { r.ok(r.FreeHost(host)) })
	tb.Cleanup(func() { r.settle(r.stream) })
	r.host = host
	return r
}

// driver is the one that there is.
func driver() (*gpu.Driver, error) {
	d, err := gpu.Open(gpu.CUDA)
	if errors.Is(err, errors.ErrUnsupported) {
		return gpu.Open(gpu.HIP)
	}
	return d, err
}

// kernelFile has mori's kernels of a name, as they are shipped for the vendor's devices.
func kernelFile(d *gpu.Driver, name string) ([]byte, error) {
	suffix := ".sm_80.ptx"
	if d.Vendor() == gpu.HIP {
		suffix = ".gfx942.hsaco"
	}
	return os.ReadFile(filepath.Join(os.Getenv("MORI_KERNEL_DIR"), name+suffix))
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) newStream() gpu.Stream {
	r.Helper()
	s, err := r.NewStream(0)
	r.ok(err)
	r.Cleanup(func() { r.ok(s.Destroy()) })
	return s
}

func (r *rig) newEvent() gpu.Event {
	r.Helper()
	e, err := r.NewEvent(true)
	r.ok(err)
	r.Cleanup(func() { r.ok(e.Destroy()) })
	return e
}

// memory allocates n bytes that are v.
func (r *rig) memory(n uint64, v byte) uint64 {
	r.Helper()
	addr, err := r.Alloc(n)
	r.ok(err)
	r.Cleanup(func() { r.ok(r.Free(addr)) })
	r.ok(r.stream.Set(addr, v, n))
	r.settle(r.stream)
	return addr
}

// settle waits for a stream, for 20 seconds at most.
func (r *rig) settle(stream gpu.Stream) {
	r.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Microsecond) {
		done, err := stream.Done()
		r.ok(err)
		if done {
			return
		}
		if time.Now().After(deadline) {
			r.Fatal("a stream does not end")
		}
	}
}

// read copies n bytes out by the rig's stream, and waits for them.
func (r *rig) read(addr uint64, n int) []byte {
	r.Helper()
	r.ok(r.stream.Copy(r.host, addr, uint64(n)))
	r.settle(r.stream)
	return bytes.Clone(bytesAt(r.host, n))
}

// write copies bytes in by the rig's stream, and waits until they are there.
func (r *rig) write(addr uint64, b []byte) {
	r.Helper()
	copy(bytesAt(r.host, len(b)), b)
	r.ok(r.stream.Copy(addr, r.host, uint64(len(b))))
	r.settle(r.stream)
}

// only reports whether all bytes are v.
func only(b []byte, v byte) bool { return bytes.Equal(b, bytes.Repeat([]byte{v}, len(b))) }
