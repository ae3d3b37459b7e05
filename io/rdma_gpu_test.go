// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"strings"
	"testing"

	"mori/core/config"
	"mori/native/gpu/gputest"
	"mori/native/verbs/verbstest"
)

// overNICs returns a session between two places that uses RDMA devices, as between hosts.
func overNICs(t *testing.T, local, remote *place) *Session {
	t.Helper()
	a, b := newEngineWith(t, "a", BackendRDMA), newEngineWith(t, "b", BackendRDMA)
	if err := a.RegisterRemoteEngine(b.Desc()); err != nil {
		t.Fatal(err)
	}
	s, err := a.CreateSession(local.register(t, a), remote.register(t, b))
	if err != nil || s == nil {
		t.Fatalf("session %v, %v", s, err)
	}
	return s
}

// TestRDMAReachesGPUs checks that the NIC alone moves bytes between GPUs, and between a GPU and the
// host. If GPU memory cannot be registered with the NIC, bytes are staged through host memory, and
// the session reports why.
func TestRDMAReachesGPUs(t *testing.T) {
	verbstest.NeedEmulated(t)
	gputest.NeedEmulated(t)
	const refused = "cuMemGetHandleForAddressRange=801"
	for _, c := range []struct {
		what, first, gpu string
		module           bool
		dmabuf           bool
		staged           bool
	}{
		{what: "dma-buf", dmabuf: true},
		{what: "peer memory", module: true},
		{what: "peer memory after dma-buf failed", module: true, first: "1", gpu: refused},
		{what: "dma-buf before peer memory", module: true, first: "1", dmabuf: true},
		{what: "neither", gpu: refused, staged: true},
	} {
		t.Run(c.what, func(t *testing.T) {
			eachPair(t, []BackendType{BackendRDMA}, func(t *testing.T, _ BackendType, local, remote *place) {
				overRDMA(t, config.EnableDMABufReg, c.first)
				gputest.Fail(t, c.gpu)
				if c.module {
					verbstest.PeerMemory(t)
				}
				verbstest.Most(t, "dmabuf")
				before := verbstest.Bytes(t, 0) + verbstest.Bytes(t, 1)
				s := overNICs(t, local, remote)
				n := uint64(local.size)
				out, in := make([]byte, n), make([]byte, n)
				fill(out, 1)
				fill(in, 2)
				local.put(t, out)
				succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{n}, 1))
				if !bytes.Equal(remote.get(t), out) {
					t.Fatal("written bytes differ")
				}
				remote.put(t, in)
				succeed(t, s.Read([]uint64{0}, []uint64{0}, []uint64{n}, 2))
				if !bytes.Equal(local.get(t), in) {
					t.Fatal("read bytes differ")
				}
				runsOn(t, s, "verbs/rdma")
				told, want := strings.Join(s.Describe().Reasons, "|"), 2*n
				if c.staged {
					says := []string{"by peer memory: register", "by dma-buf: make a dma-buf of", "mori doctor"}
					if remote.dev != nil {
						says = []string{"no NIC of the peer can access its region", "its log says why"}
					}
					for _, words := range append(says, "some ops use TCP") {
						if !strings.Contains(told, words) {
							t.Errorf("it does not say %q: %s", words, told)
						}
					}
					want = 0
				} else if strings.Contains(told, "TCP") {
					t.Error(told)
				}
				// A notification has 8 bytes.
				if moved := verbstest.Bytes(t, 0) + verbstest.Bytes(t, 1) - before; moved < want || moved > want+256 {
					t.Errorf("NICs moved %d bytes, want %d: %s", moved, want, told)
				}
				if by := verbstest.Most(t, "dmabuf") > 0; by != c.dmabuf {
					t.Errorf("by dma-buf: %v: %s", by, told)
				}
			})
		})
	}
}
