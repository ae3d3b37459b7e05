// SPDX-License-Identifier: MIT

package gputest

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mori/native/abi"
	"mori/native/gpu"
)

// TestNothingIsDoneAtOnce: the calls return while the work waits, and who does not wait for it
// reads the bytes of before.
func TestNothingIsDoneAtOnce(t *testing.T) {
	r := newRig(t, 0)
	addr, e := r.memory(4096, 1), r.newEvent()
	clear(bytesAt(r.host, 4096))
	release := Hold(t)
	r.ok(r.stream.Set(addr, 2, 4096))
	r.ok(r.stream.Copy(r.host, addr, 4096))
	r.ok(e.Record(r.stream))
	for what, query := range map[string]func() (bool, error){"the event": e.Done, "the stream": r.stream.Done} {
		if done, err := query(); err != nil || done {
			t.Errorf("%s is done: %v, %v", what, done, err)
		}
	}
	if !only(bytesAt(r.host, 4096), 0) {
		t.Error("bytes were copied before the turn of the copy came")
	}
	release()
	r.settle(r.stream)
	if done, err := e.Done(); err != nil || !done {
		t.Errorf("the event is done: %v, %v", done, err)
	}
	if !only(bytesAt(r.host, 4096), 2) {
		t.Error("the copy was not of what the memset wrote")
	}
}

// TestEventsOrderStreams: with the wait the bytes are right in every order of the streams' threads,
// and without it they are wrong in some.
func TestEventsOrderStreams(t *testing.T) {
	r := newRig(t, 0)
	other, e := r.newStream(), r.newEvent()
	addr := r.memory(4096, 0)
	stale := 0
	for i := 1; i <= 60; i++ {
		Delay(t, i)
		r.ok(other.Set(addr, byte(i), 4096))
		r.ok(e.Record(other))
		if !only(r.read(addr, 4096), byte(i)) {
			stale++
		}
		r.ok(r.stream.Wait(e))
		if !only(r.read(addr, 4096), byte(i)) {
			t.Errorf("round %d: a stream that waited for the event sees other bytes", i)
		}
	}
	if stale == 0 {
		t.Error("not one missing wait showed")
	}
}

// TestAWaitIsForWhatWasRecorded: not for what is recorded later, and not for an event that never
// was.
func TestAWaitIsForWhatWasRecorded(t *testing.T) {
	r := newRig(t, 0)
	other, e := r.newStream(), r.newEvent()
	r.ok(r.stream.Wait(e))
	r.settle(r.stream)
	addr := r.memory(64, 3)
	release := Hold(t)
	r.ok(other.Set(addr, 4, 64))
	r.ok(e.Record(other))
	r.ok(r.stream.Wait(e))
	r.ok(e.Record(r.stream)) // it would wait for itself
	release()
	r.settle(r.stream)
	if !only(r.read(addr, 64), 4) {
		t.Error("the wait was for something else")
	}
	if ms, err := e.Since(e); err != nil || ms != 0 {
		t.Error(ms, err)
	}
}

// TestPageableMemory: a copy from it has read it when the call returns, a copy to it has written
// it.
func TestPageableMemory(t *testing.T) {
	r := newRig(t, 0)
	Delay(t, 5)
	addr, plain := r.memory(8192, 0), make([]byte, 8192)
	for i := range plain {
		plain[i] = 7
	}
	r.ok(r.stream.Copy(addr, addrOf(plain), 8192))
	clear(plain)
	r.ok(r.stream.Copy(addrOf(plain), addr, 8192))
	if !only(plain, 7) {
		t.Error("other bytes")
	}
}

func TestTwoDevices(t *testing.T) {
	a, b := newRig(t, 0), newRig(t, 1)
	from, to := a.memory(hostBytes, 9), b.memory(hostBytes, 0)
	a.ok(a.stream.CopyPeer(to, 1, from, 0, hostBytes))
	a.settle(a.stream)
	if !only(b.read(to, hostBytes), 9) {
		t.Error("the peer has other bytes")
	}
	if err := (gpu.Stream{Device: a.Device, Handle: b.stream.Handle}).Set(from, 1, 16); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("a stream of another device was taken: %v", err)
	}
}

func TestOutOfMemory(t *testing.T) {
	r := newRig(t, 0)
	Memory(t, 1<<20)
	r.memory(1<<19, 0)
	if free, total, err := r.MemInfo(); err != nil || free != 1<<19 || total != 1<<20 {
		t.Error(free, total, err)
	}
	if _, err := r.Alloc(1<<19 + 1); !errors.Is(err, gpu.ErrNoMemory) {
		t.Errorf("more than there is: %v", err)
	}
	if _, err := r.Virtual().Create(1 << 20); !errors.Is(err, gpu.ErrNoMemory) {
		t.Errorf("more than there is: %v", err)
	}
}

func TestCallsThatFail(t *testing.T) {
	r := newRig(t, 0)
	Fail(t, "cuMemAlloc_v2=2,cuMemcpyAsync=1,hipMalloc=2,hipMemcpyAsync=1")
	if _, err := r.Alloc(64); !errors.Is(err, gpu.ErrNoMemory) {
		t.Error(err)
	}
	if err := r.stream.Copy(r.host, r.host+8, 8); !errors.Is(err, gpu.ErrInvalid) {
		t.Error(err)
	}
	Fail(t, "")
	r.memory(64, 1)
}

// kernels loads a file of mori's kernels, as they are shipped.
func (r *rig) kernels(name string) gpu.Module {
	r.Helper()
	image, err := kernelFile(r.Driver, name)
	r.ok(err)
	m, err := r.LoadModule(image)
	r.ok(err)
	r.Cleanup(func() { r.ok(m.Unload()) })
	return m
}

func (r *rig) kernel(module gpu.Module, name string) gpu.Function {
	r.Helper()
	f, err := module.Function(name)
	r.ok(err)
	return f
}

// TestCopyBlocks runs mori's own kernel over a list of segments.
func TestCopyBlocks(t *testing.T) {
	r := newRig(t, 0)
	f := r.kernel(r.kernels("io_copy_blocks"), "mori_io_copy_blocks")
	const blocks, size = 24, 1000
	want := make([]byte, blocks*size)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	from, to := r.memory(blocks*size, 0), r.memory(blocks*size, 0)
	r.write(from, want)
	var list []abi.IOSegment
	for i, j := range rand.Perm(blocks) {
		at := uint64(j) * size
		list = append(list, abi.IOSegment{Destination: to + at, Source: from + at, Bytes: size, Before: uint64(i) * size})
	}
	segments, arrivals, done := r.memory(blocks*abi.IOSegmentBytes, 0), r.memory(64, 0), r.host+hostBytes-8
	r.write(segments, abi.SliceBytes(list))
	clear(bytesAt(done, 8))
	args := abi.Bytes(&abi.IOCopyBlocksArgs{
		List: segments, Count: blocks, Total: blocks * size, Arrivals: arrivals, Completion: done, CompletionValue: 42,
	})
	r.ok(f.Launch(&gpu.Grid{Blocks: [3]uint32{4, 1, 1}, Threads: [3]uint32{256, 1, 1}}, r.stream, args))
	r.settle(r.stream)
	if got := binary.LittleEndian.Uint64(bytesAt(done, 8)); got != 42 {
		t.Errorf("the kernel told %d when it was done", got)
	}
	if string(r.read(to, len(want))) != string(want) {
		t.Error("other bytes")
	}
	if err := f.Launch(&gpu.Grid{Blocks: [3]uint32{1, 1, 1}, Threads: [3]uint32{32, 1, 1}}, r.stream, args[:40]); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("arguments are missing: %v", err)
	}
}

// reached are PEs whose heaps kernels load and store.
func reached(heaps ...uint64) (peers []abi.ShmemPeer) {
	for _, h := range heaps {
		peers = append(peers, abi.ShmemPeer{Heap: h, Transport: abi.ShmemTransportP2P})
	}
	return peers
}

// TestModulesHaveTheirOwnVariables: two modules of one file are two PEs of symmetric memory, which
// a barrier synchronises.
func TestModulesHaveTheirOwnVariables(t *testing.T) {
	a, b := newRig(t, 0), newRig(t, 0)
	heaps := [2]uint64{a.memory(4096, 0), a.memory(4096, 0)}
	for pe, r := range []*rig{a, b} {
		module := r.kernels("shmem_barrier")
		addr, n, err := module.Global("mori_shmem_state")
		r.ok(err)
		if n != abi.ShmemStateBytes {
			t.Fatalf("the state has %d bytes", n)
		}
		peers := r.memory(64, 0)
		r.write(peers, abi.SliceBytes(reached(heaps[0], heaps[1])))
		r.write(addr, abi.Bytes(&abi.ShmemState{
			Version: abi.ShmemStateVersion, MyPE: int32(pe), NPEs: 2, Heap: heaps[pe], HeapBytes: 4096, WaitLimit: 20e9,
			Peers: peers,
		}))
		f := r.kernel(module, "mori_shmem_barrier")
		r.ok(f.Launch(&gpu.Grid{Blocks: [3]uint32{1, 1, 1}, Threads: [3]uint32{32, 1, 1}}, r.stream, nil))
		if pe == 0 {
			continue
		}
		a.settle(a.stream)
		b.settle(b.stream)
	}
	if !Real() {
		if only(a.read(heaps[0], 1024), 0) || only(a.read(heaps[1], 1024), 0) {
			t.Error("the barrier wrote nothing")
		}
	}
}

func TestImages(t *testing.T) {
	r := newRig(t, 0)
	newer := []byte(".version 99.0\n.target sm_80\n.address_size 64\n")
	for what, image := range map[string][]byte{"no code": []byte("what"), "newer PTX": newer} {
		if _, err := r.LoadModule(image); !errors.Is(err, gpu.ErrImage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	m := r.kernels("io_copy_blocks")
	if _, err := m.Function("mori_shmem_barrier"); !errors.Is(err, gpu.ErrNoSymbol) {
		t.Errorf("a kernel of another module: %v", err)
	}
	if _, _, err := m.Global("mori_shmem_state"); !errors.Is(err, gpu.ErrNoSymbol) {
		t.Errorf("a variable of another module: %v", err)
	}
	NeedEmulated(t)
	if r.Driver.Vendor() != gpu.CUDA {
		return
	}
	t.Setenv("FAKE_GPU_DRIVER", "11040")
	image, err := os.ReadFile(filepath.Join(os.Getenv("MORI_KERNEL_DIR"), "io_copy_blocks.sm_90.ptx"))
	r.ok(err)
	if _, err := r.LoadModule(image); !errors.Is(err, gpu.ErrImage) || !strings.Contains(err.Error(), "PTX") {
		t.Errorf("a driver of CUDA 11.4: %v", err)
	}
}
