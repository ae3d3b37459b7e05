// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/native/gpu/gputest"
)

// faults are the driver's calls that copies need, each with an answer.
var faults = []string{
	"cuIpcGetMemHandle=1", "cuIpcOpenMemHandle_v2=2", "cuMemHostRegister_v2=2", "cuMemHostRegister_v2=712", "cuModuleLoadDataEx=218",
	"cuModuleGetFunction=500", "cuLaunchKernel=2", "cuLaunchKernel=701", "cuMemcpyAsync=2", "cuStreamCreateWithPriority=2", "cuStreamQuery=719",
	"cuMemAlloc_v2=2", "cuMemHostAlloc=2", "cuMemsetD8Async=1", "cuPointerGetAttributes=1", "cuCtxEnablePeerAccess=217",
	"cuDeviceCanAccessPeer=1", "cuDevicePrimaryCtxRetain=2",
}

// A driver's call that fails ends the op with its words, or sends it another way; the next op is
// not disturbed, and nothing is left.
func TestDriverFaults(t *testing.T) {
	gputest.NeedEmulated(t)
	for _, fault := range faults {
		t.Run(fault, func(t *testing.T) {
			n := uint64(20_000)
			if strings.HasPrefix(fault, "cuMemcpyAsync") {
				n = 2 << 20 // what the copy engines get
			}
			for _, r := range []route{{0, 1}, {-1, 0}, {0, -1}} {
				a, b := newPair(t, Options{})
				local, remote := a.memory(t, r.local, 0, n), b.memory(t, r.remote, 0, n)
				key := a.imports(t, remote.mr.Raw())
				local.fill(t, 1)
				op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
				gputest.Fail(t, fault)
				err := a.do(op)
				gputest.Fail(t, "")
				var entry *fabric.ErrEntry
				if err == nil {
					remote.has(t, n, 1)
				} else if !errors.As(err, &entry) || entry.Err == 0 || entry.Detail == "" {
					t.Errorf("%v: %v", r, err)
				}
				local.fill(t, 2)
				ok(t, a.do(op))
				remote.has(t, n, 2)
			}
		})
	}
}

// A driver that is too old for the kernels, or a GPU without any for it, copies piece by piece.
func TestWithoutKernel(t *testing.T) {
	t.Setenv("MORI_KERNEL_DIR", t.TempDir())
	gputest.Need(t, 2)
	a, b := newPair(t, Options{})
	const n, pieces = 64, 100
	local, remote := a.memory(t, 0, 0, 2*n*pieces), b.memory(t, 1, 0, n*pieces)
	local.fill(t, 1)
	key := a.imports(t, remote.mr.Raw())
	op := fabric.Op{Kind: fabric.OpWrite, RSeg: fabric.RSeg{Len: n * pieces, Key: key}}
	want := pattern(2*n*pieces, 1)
	var there []byte
	for i := range uint64(pieces) {
		op.More = append(op.More, local.seg(2*n*i, n))
		there = append(there, want[2*n*i:2*n*i+n]...)
	}
	ok(t, a.do(op))
	got, err := remote.get(0, n*pieces)
	ok(t, err)
	ok(t, same(got, there))
	a.byGPU(t)
}

// A device that does not go on: the connection ends all the same, its ops with ErrTimeout, and
// memory that may still be written is not given back until it cannot be.
func TestDeviceHangs(t *testing.T) {
	gputest.NeedEmulated(t)
	a, b := newPair(t, Options{releaseWait: 200 * time.Millisecond})
	const n = 1 << 16
	local, remote := a.memory(t, 0, 0, n), b.memory(t, 1, 0, n)
	key := a.imports(t, remote.mr.Raw())
	op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
	ok(t, a.do(op)) // so that what is needed is there
	release := gputest.Hold(t)
	ok(t, a.submit(op))
	shut, closed := make(chan error, 1), make(chan error, 1)
	go func() { shut <- a.connector().Shutdown() }()
	if _, err := a.next(); !errors.Is(err, fabric.ErrTimeout) {
		t.Errorf("the op ended with %v", err)
	}
	go func() { closed <- local.mr.Close() }()
	select {
	case err := <-closed:
		t.Errorf("the region of a copy under way closed: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	ok(t, errors.Join(<-closed, <-shut))
}

// Each byte lands where it belongs with delays between all that a device does.
func TestWithDelays(t *testing.T) {
	gputest.NeedEmulated(t)
	for seed := range 3 {
		gputest.Delay(t, seed+1)
		for _, r := range []route{{0, 1}, {-1, 0}, {0, -1}} {
			a, b := newPair(t, Options{Blocks: seed}) // one after the other, and beside each other
			const n = 1 << 20
			local, remote := a.memory(t, r.local, 0, n), b.memory(t, r.remote, 0, n)
			key := a.imports(t, remote.mr.Raw())
			local.fill(t, seed)
			for i := range uint64(64) {
				ok(t, a.submit(fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(i*n/64, n/64), RSeg: fabric.RSeg{Addr: i * n / 64, Len: n / 64, Key: key}}))
			}
			for range 64 {
				_, err := a.next()
				ok(t, err)
			}
			remote.has(t, n, seed)
		}
	}
}
