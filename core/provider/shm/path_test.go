// SPDX-License-Identifier: MIT

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/shm/internal/ring"
)

func eachWay(t *testing.T, test func(t *testing.T, a, b *fakeEndpoint)) {
	for _, w := range []way{wayCMA, wayMemmove} {
		t.Run(wayText[w], func(t *testing.T) {
			a, b := newPair(t, w)
			test(t, a, b)
		})
	}
}

func rmaOp(kind fabric.OpKind, local []byte, off uint64) *fabric.Op {
	n := uint64(len(local))
	return &fabric.Op{Kind: kind, Seg: fabric.Seg{Addr: sys.AddrOf(local), Len: n}, RSeg: fabric.RSeg{Addr: off, Len: n}}
}

func TestDataPathReadsAndWrites(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		for i, n := range []int{1, 4096, 64 << 10, 5<<20 + 3} {
			region, _ := grantRegion(t, b, uint64(i), n+10, allRights)
			local, _ := memory(t, n)
			for j := range local {
				local[j] = byte(j*3 + j>>8 + n)
			}
			write, read := conn.Ticket(2*i), conn.Ticket(2*i+1)
			a.path.RMA(write, rmaOp(fabric.OpWrite, local, 10), regionKey(uint64(i)))
			if err := a.wait(t, write); err != nil || !bytes.Equal(region[10:], local) {
				t.Fatalf("write of %d bytes: %v", n, err)
			}
			back, _ := memory(t, n)
			a.path.RMA(read, rmaOp(fabric.OpRead, back, 10), regionKey(uint64(i)))
			if err := a.wait(t, read); err != nil || !bytes.Equal(back, local) {
				t.Fatalf("read of %d bytes: %v", n, err)
			}
		}
	})
}

func TestDataPathRefuses(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		region, _ := grantRegion(t, b, 1, 4096, fabric.AccessRemoteRead)
		grantRegion(t, b, 2, 4096, allRights)
		local, _ := memory(t, 4096)
		local[0] = 1
		badSecret := regionKey(1)
		badSecret.Secret[15] ^= 1
		tests := []struct {
			name string
			op   *fabric.Op
			key  fabric.RegionKey
			want error
		}{
			{"unknown region", rmaOp(fabric.OpRead, local, 0), regionKey(9), fabric.ErrNoKey},
			{"wrong secret", rmaOp(fabric.OpRead, local, 0), badSecret, fabric.ErrNoKey},
			{"wrong secret again", rmaOp(fabric.OpRead, local, 0), badSecret, fabric.ErrNoKey},
			{"missing right", rmaOp(fabric.OpWrite, local, 0), regionKey(1), fabric.ErrAccess},
			{"one byte beyond", rmaOp(fabric.OpRead, local, 1), regionKey(1), fabric.ErrRange},
			{"far beyond", rmaOp(fabric.OpWrite, local, 1<<40), regionKey(2), fabric.ErrRange},
			{"offset that wraps", rmaOp(fabric.OpWrite, local, ^uint64(0)), regionKey(2), fabric.ErrRange},
			{"nothing, beyond the end", rmaOp(fabric.OpWrite, local[:0], 4097), regionKey(2), fabric.ErrRange},
			{"nothing, at the end", rmaOp(fabric.OpWrite, local[:0], 4096), regionKey(2), nil},
			{"in order", rmaOp(fabric.OpRead, local, 0), regionKey(1), nil},
		}
		for i, tt := range tests {
			a.path.RMA(conn.Ticket(i), tt.op, tt.key)
			if err := a.wait(t, conn.Ticket(i)); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
		}
		if region[0] != 0 {
			t.Error("a refused write left a byte")
		}
	})
}

func TestClosedRegionCannotBeTouched(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		const n = 8 << 20
		region, mr := grantRegion(t, b, 1, n, allRights)
		local, _ := memory(t, n)
		for i := range local {
			local[i] = 1
		}
		var next atomic.Uint32
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() { // writes continuously, several at a time, small and large
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				first := conn.Ticket(next.Load())
				a.path.RMA(first, rmaOp(fabric.OpWrite, local, 0), regionKey(1))
				a.path.RMA(first+1, rmaOp(fabric.OpWrite, local[:64], 0), regionKey(1))
				next.Add(2)
				_ = a.wait(t, first)
			}
		}()
		for next.Load() < 6 {
			time.Sleep(time.Millisecond)
		}
		if err := mr.Close(); err != nil {
			t.Fatal(err)
		}
		clear(region)
		time.Sleep(20 * time.Millisecond)
		for i, v := range region {
			if v != 0 {
				t.Fatalf("byte %d was written after the region closed", i)
			}
		}
		close(stop)
		<-done
		a.path.RMA(1<<30, rmaOp(fabric.OpWrite, local, 0), regionKey(1))
		if err := a.wait(t, 1<<30); !errors.Is(err, fabric.ErrNoKey) {
			t.Fatalf("write to a closed region: %v", err)
		}
	})
}

func TestRegionClosesAlthoughTheHolderIsDeaf(t *testing.T) {
	a, b := newPair(t, wayCMA)
	a.drop, a.deaf = func(kind uint8) bool { return kind == grant.FrameRevoke }, true
	_, mr := grantRegion(t, b, 1, 4096, allRights)
	local, _ := memory(t, 64)
	a.path.RMA(1, rmaOp(fabric.OpWrite, local, 0), regionKey(1))
	if err := a.wait(t, 1); err != nil {
		t.Fatal(err)
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-b.failed; !errors.Is(err, fabric.ErrTimeout) {
		t.Fatalf("the connection ended by %v", err)
	}
	a.path.RMA(2, rmaOp(fabric.OpWrite, local, 0), regionKey(1))
	if err := a.wait(t, 2); !errors.Is(err, fabric.ErrConnReset) {
		t.Fatalf("a write past the fence: %v", err)
	}
}

func TestFreedBuffers(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		region, _ := grantRegion(t, b, 1, 4<<20, allRights)
		local, _ := memory(t, 4<<20)
		hole := func(m []byte, prot int) {
			if err := unix.Mprotect(m[2<<20:3<<20], prot); err != nil {
				t.Fatal(err)
			}
		}
		const open, shut = unix.PROT_READ | unix.PROT_WRITE, unix.PROT_NONE
		for i, tt := range []struct {
			m    []byte
			want string
		}{{region, "did it free that memory"}, {local, "freed"}} {
			hole(tt.m, shut)
			for j, from := range []int{2<<20 - 100, 0} { // a small op on this thread, a large one on workers
				n := (4 << 20) >> (10 * (1 - j)) // 4 KiB, 4 MiB
				ticket := conn.Ticket(2*i + j)
				a.path.RMA(ticket, rmaOp(fabric.OpWrite, local[from:][:n], uint64(from)), regionKey(1))
				if err := a.wait(t, ticket); !errors.Is(err, syscall.EFAULT) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%d bytes: %v, want %q", n, err, tt.want)
				}
			}
			hole(tt.m, open)
		}
		a.path.RMA(100, rmaOp(fabric.OpWrite, local, 0), regionKey(1))
		if err := a.wait(t, 100); err != nil {
			t.Fatalf("afterwards: %v", err)
		}
	})
}

func TestRemoteDataArrivesAfterTheBytes(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		const n = 3 * ring.Entries
		region, _ := grantRegion(t, b, 1, 8*n, allRights)
		local, _ := memory(t, 8*n)
		for i := range local {
			local[i] = 0xab
		}
		go func() { // more than the ring holds: ops wait for room
			for i := range n {
				op := rmaOp(fabric.OpWrite, local[8*i:8*i+8], uint64(8*i))
				op.Flags, op.Data = fabric.OpRemoteData, uint64(i)
				a.path.RMA(conn.Ticket(i), op, regionKey(1))
			}
		}()
		got, seen := make([]fabric.Completion, 100), make([]bool, n)
		for i := 0; i < n; {
			k, err := b.cq.Wait(t.Context(), got)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range got[:k] {
				at := c.Data
				if c.Kind != fabric.OpRemoteWrite || c.Flags != fabric.OpRemoteData || c.Len != 8 || at >= n || seen[at] {
					t.Fatalf("completion %d: %+v", i, c)
				}
				if !bytes.Equal(region[8*at:8*at+8], local[8*at:8*at+8]) {
					t.Fatalf("completion of write %d came before its bytes", at)
				}
				seen[at] = true
				i++
			}
		}
		for i := range n {
			if err := a.wait(t, conn.Ticket(i)); err != nil {
				t.Fatalf("write %d: %v", i, err)
			}
		}
	})
}

func TestStopEndsEveryOpOnce(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		grantRegion(t, b, 1, 16<<20, allRights)
		local, _ := memory(t, 16<<20)
		cause := fmt.Errorf("test: %w", fabric.ErrShutdown)
		for i := range 50 {
			op := rmaOp(fabric.OpWrite, local[:(16<<20)>>(i%5)], 0)
			if i%2 == 0 {
				op.Flags = fabric.OpRemoteData
			}
			a.path.RMA(conn.Ticket(i), op, regionKey(uint64(1+i%3/2))) // region 2 is refused
		}
		a.Fail(cause)
		<-a.stopped
		for i := range 50 {
			if a.running(conn.Ticket(i)) {
				t.Fatalf("op %d still runs after Stop", i)
			}
			if err := a.wait(t, conn.Ticket(i)); err != nil && !errors.Is(err, cause) && !errors.Is(err, fabric.ErrNoKey) {
				t.Errorf("op %d: %v", i, err)
			}
		}
		a.path.RMA(60, rmaOp(fabric.OpWrite, local, 0), regionKey(1))
		if err := a.wait(t, 60); !errors.Is(err, cause) {
			t.Errorf("after Stop: %v", err)
		}
	})
}

func TestCompletionsOutliveTheRing(t *testing.T) {
	a, b := newPair(t, wayCMA)
	grantRegion(t, b, 1, 64, allRights)
	local, _ := memory(t, 8)
	const n = 200 // more than the queue holds
	for i := range n {
		op := rmaOp(fabric.OpWrite, local, 0)
		op.Flags, op.Data = fabric.OpRemoteData, uint64(i)
		a.path.RMA(conn.Ticket(i), op, regionKey(1))
		if err := a.wait(t, conn.Ticket(i)); err != nil {
			t.Fatal(err)
		}
	}
	b.Fail(fabric.ErrConnReset)
	<-b.stopped
	got := make([]fabric.Completion, n)
	for i := 0; i < n; {
		k, err := b.cq.Read(got)
		if err != nil {
			t.Fatalf("after %d completions: %v", i, err)
		}
		for _, c := range got[:k] {
			if c.Data != uint64(i) {
				t.Fatalf("completion %d is %+v", i, c)
			}
			i++
		}
	}
}

func TestForgedFramesEndTheConnection(t *testing.T) {
	ask := askBody(1, regionKey(1))
	for name, frames := range map[string][][]any{
		"unknown kind":               {{uint8(200), []byte(nil)}},
		"short ask":                  {{grant.FrameRequest, ask[:5]}},
		"ask with the same ticket":   {{grant.FrameRequest, ask}, {grant.FrameRequest, ask}},
		"grant nobody asked for":     {{grant.FrameGrant, grantBody(7, site{4096, 4096, allRights})}},
		"grant that wraps":           {{grant.FrameGrant, grantBody(7, site{^uint64(0), 2, allRights})}},
		"refusal of nothing":         {{grant.FrameRefuse, refuseBody(7, fabric.ErrNoKey)}},
		"refusal without a cause":    {{grant.FrameRefuse, refuseBody(7, 0)}},
		"revoke of nothing":          {{grant.FrameRevoke, ticketBody(7)}},
		"return that was not called": {{grant.FrameRequest, ask}, {grant.FrameReturn, ticketBody(1)}},
		"return of nothing":          {{grant.FrameReturn, ticketBody(9)}},
		"long ticket":                {{grant.FrameReturn, make([]byte, 9)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, b := newPair(t, wayCMA)
			grantRegion(t, b, 1, 64, allRights)
			b.peer.drop = func(uint8) bool { return true }
			for _, f := range frames {
				_ = b.peer.SendFrame(f[0].(uint8), f[1].([]byte))
			}
			select {
			case err := <-b.failed:
				if !errors.Is(err, fabric.ErrProtocol) {
					t.Fatal(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the connection lives on")
			}
		})
	}
}
