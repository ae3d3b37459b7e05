// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/native/gpu/gputest"
)

// A route is where the two ends of an op are: a device, or -1 for the host.
type route struct{ local, remote int }

func (r route) String() string {
	name := func(d int) string {
		if d < 0 {
			return "host"
		}
		return fmt.Sprintf("gpu%d", d)
	}
	return name(r.local) + "-" + name(r.remote)
}

// routes are those on which a GPU copies.
var routes = []route{{0, 1}, {0, 0}, {1, 0}, {-1, 0}, {-1, 1}, {0, -1}, {1, -1}}

func eachRoute(t *testing.T, test func(t *testing.T, r route)) { onRoutes(t, routes, test) }

// fewRoutes has one route for each way to copy.
func fewRoutes(t *testing.T, test func(t *testing.T, r route)) {
	onRoutes(t, []route{{0, 1}, {-1, 0}, {0, -1}}, test)
}

func onRoutes(t *testing.T, routes []route, test func(t *testing.T, r route)) {
	for _, r := range routes {
		t.Run(r.String(), func(t *testing.T) {
			gputest.Need(t, 1+max(r.local, r.remote, 0))
			test(t, r)
		})
	}
}

// byGPU fails the test if an op went by the socket.
func (e *end) byGPU(tb testing.TB) {
	tb.Helper()
	if reason := e.path(); strings.Contains(reason, "socket") {
		tb.Error(reason)
	}
}

func TestReadsAndWrites(t *testing.T) {
	eachRoute(t, func(t *testing.T, r route) {
		a, b := newPair(t, Options{})
		for i, n := range []uint64{1, 7, 4096, 100_003, 9<<20 + 3} {
			local, remote := a.memory(t, r.local, 64, n), b.memory(t, r.remote, 4096+48, n)
			key := a.imports(t, remote.mr.Raw())
			local.fill(t, i)
			ok(t, a.do(fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}))
			remote.has(t, n, i)
			remote.fill(t, i+100)
			ok(t, a.do(fabric.Op{Kind: fabric.OpRead, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}))
			local.has(t, n, i+100)
		}
		a.byGPU(t)
	})
}

// A region that goes beyond its memory is never a GPU's to copy: that could cost the process its
// device.
func TestRegionThatIsNone(t *testing.T) {
	a, b := newPair(t, Options{})
	local, other := a.memory(t, 0, 0, 4096), b.memory(t, 0, 0, 4096)
	beyond := &registered{Buffer: fabric.Buffer{Addr: other.Addr, Len: 1 << 40, Kind: other.Kind}, dev: other.dev}
	ok(t, b.register(beyond))
	defer func() { ok(t, beyond.mr.Close()) }()
	key := a.imports(t, beyond.mr.Raw())
	op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, 4096), RSeg: fabric.RSeg{Len: 4096, Key: key}}
	ok(t, a.do(op))
	if why := a.path(); !strings.Contains(why, "unreachable") {
		t.Errorf("path: %s", why)
	}
}
