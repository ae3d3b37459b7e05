// SPDX-License-Identifier: MIT

package verbs

import (
	"fmt"
	"strings"
	"testing"

	"mori/core/device"
	"mori/core/device/devicetest"
	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/native/gpu/gputest"
	"mori/native/verbs/verbstest"
)

// needGPU skips where there is no GPU with a NIC that may reach it.
func needGPU(t *testing.T) []*device.Device {
	t.Helper()
	verbstest.Need(t)
	if !gpuAndNICAlike() {
		t.Skip("one of GPU and NIC is emulated, and the other is real")
	}
	gputest.Need(t)
	all, err := device.Devices()
	ok(t, err)
	return all
}

// TestDevice: the suite of all providers for memory of GPUs, which NICs reach, and which they do
// not.
func TestDevice(t *testing.T) {
	needGPU(t)
	for _, mode := range []string{"by NIC", "by TCP"} {
		t.Run(mode, func(t *testing.T) {
			if mode == "by TCP" {
				gputest.Fail(t, "cuMemGetHandleForAddressRange=801")
			}
			fabrictest.TestDevice(t, openQuiet, devicetest.Places(t)[:1]...)
		})
	}
}

// A gpuRegion is registered memory of a GPU.
type gpuRegion struct {
	*devicetest.Memory
	fabric.Buffer
	mr fabric.MR
}

func (e *end) gpuMemory(t *testing.T, d *device.Device, n uint64) *gpuRegion {
	t.Helper()
	m := devicetest.Alloc(t, d, int(n))
	mr, err := e.register(m.Buffer(), allRights)
	ok(t, err)
	t.Cleanup(func() { ok(t, mr.Close()) })
	return &gpuRegion{m, m.Buffer(), mr}
}

// op reads or writes n bytes of all of a region.
func (g *gpuRegion) op(kind fabric.OpKind, n, key uint64) fabric.Op {
	return fabric.Op{Kind: kind, Seg: fabric.Seg{Addr: g.Addr, Len: n, MR: g.mr.Desc()}, RSeg: fabric.RSeg{Len: n, Key: key}}
}

func (g *gpuRegion) holds(t *testing.T, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	g.Read(got)
	ok(t, same(got, want))
}

// TestGPUMemoryByNIC: bytes go from GPU to GPU by the NIC alone, whichever way it is shown the
// memory; what it cannot be shown goes through host memory and TCP, and both sides say why.
func TestGPUMemoryByNIC(t *testing.T) {
	all := needGPU(t)
	verbstest.NeedEmulated(t)
	const n, refused = 700_000, "cuMemGetHandleForAddressRange=801"
	for _, c := range []struct {
		what       string
		first      bool   // dma-buf
		module     bool   // of peer memory
		gpu, nic   string // calls that fail
		dmabuf     uint64 // bytes of a region that is shown so
		staged     bool
		says, logs []string
	}{
		{what: "no module", dmabuf: n},
		{what: "no module, dma-buf first", first: true, dmabuf: n},
		{what: "a module", module: true},
		{what: "a module, dma-buf first", module: true, first: true, dmabuf: n},
		{what: "a module, and a driver without dma-bufs", module: true, first: true, gpu: refused},
		{what: "a module, and a NIC without dma-bufs", module: true, first: true, nic: "ibv_reg_dmabuf_mr=95"},
		{what: "neither", gpu: refused, staged: true, logs: []string{"by peer memory: register 700000 bytes at", "bad address; by dma-buf: make a dma-buf of 700000 bytes"}},
		{what: "a NIC without either", first: true, nic: "ibv_reg_dmabuf_mr=95", staged: true,
			logs: []string{"by dma-buf: register 700000 bytes at 0 of a dma-buf: operation not supported; by peer memory: register"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.module {
				verbstest.PeerMemory(t)
			}
			verbstest.Fail(t, c.nic)
			gputest.Fail(t, c.gpu)
			a, b := newEnds(t, way{Settings: Settings{DMABuf: c.first}, gpu: true})
			from, to := a.gpuMemory(t, all[0], n), b.gpuMemory(t, all[len(all)-1], n)
			key := a.imports(t, to.mr)
			a.path(t)
			verbstest.Most(t, "dmabuf")
			before := verbstest.Bytes(t, 0)

			sent, back := pattern(n, 1), pattern(n, 2)
			from.Write(sent)
			ok(t, a.do(from.op(fabric.OpWrite, n, key)))
			to.holds(t, sent)
			to.Write(back)
			ok(t, a.do(from.op(fabric.OpRead, n, key)))
			from.holds(t, back)

			want := uint64(2 * n)
			if c.staged {
				want = 0
			}
			if moved := verbstest.Bytes(t, 0) - before; moved != want {
				t.Errorf("the NIC moved %d bytes, want %d", moved, want)
			}
			if most := verbstest.Most(t, "dmabuf"); most != c.dmabuf {
				t.Errorf("a dma-buf of %d bytes is registered, want %d", most, c.dmabuf)
			}
			for side, e := range map[string]*end{"here": a, "there": b} {
				if reported := strings.Contains(e.reason(), "TCP"); reported != c.staged {
					t.Errorf("%s: %s", side, e.reason())
				}
				if !c.staged && strings.Contains(e.log.String(), "level=WARN") {
					t.Errorf("%s: %s", side, e.log)
				}
			}
			for _, words := range c.logs {
				if !strings.Contains(b.log.String(), words) || !strings.Contains(b.reason(), words) {
					t.Errorf("%q is not reported: %s", words, b.reason())
				}
			}
			if c.staged && !strings.Contains(b.reason(), fmt.Sprintf("of %v with emu0", all[len(all)-1])) {
				t.Errorf("what is shown to what is not reported: %s", b.reason())
			}
		})
	}
}

// TestShortGPUMemory: what would be inline of host memory is not of a GPU's, which the processor
// cannot read: the NIC is shown it.
func TestShortGPUMemory(t *testing.T) {
	all := needGPU(t)
	verbstest.NeedEmulated(t)
	a, b := newEnds(t, way{gpu: true})
	from, to := a.gpuMemory(t, all[0], 64), b.gpuMemory(t, all[0], 64)
	key, dp := a.imports(t, to.mr), a.path(t)
	sent := pattern(32, 3)
	from.Write(sent)
	ok(t, a.do(from.op(fabric.OpWrite, 32, key)))
	to.holds(t, sent)
	if n := len(dp.domain.regions.All()); n != 1 {
		t.Errorf("%d regions of the writer are shown to NICs, want 1", n)
	}
}
