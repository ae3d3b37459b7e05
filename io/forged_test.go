// SPDX-License-Identifier: MIT

package io

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The layout of a ring of transport shm; see core/provider/shm/ring.go.
const (
	ringProduced   = 0
	ringNotices    = 4096
	ringNoticeSize = 32
)

// rings returns the mapped rings of this process's shared-memory connections, by address.
func rings(t *testing.T) map[uint64][]byte {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	all := map[uint64][]byte{}
	for _, line := range strings.Split(string(maps), "\n") {
		from, to, _ := strings.Cut(strings.Fields(line + " -")[0], "-")
		begin, err := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if strings.Contains(line, "mori-shm-ring") && err == nil && err2 == nil {
			all[begin] = bytesAt(begin, int(end-begin))
		}
	}
	return all
}

// TestAForgedArrivalIsNotReported makes a peer write a notification into the ring for a write that
// never happened, under a grant that it never received. The target reports no arrival and ends the
// connection. Later transfers use a new connection.
func TestAForgedArrivalIsNotReported(t *testing.T) {
	const real, forged = 5, 777
	_, b, s := pair(t, 4096, BackendRDMA, nil)
	before := rings(t)
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, real))
	arrived(t, b.Engine, "a", real)
	lies := 0
	for at, ring := range rings(t) {
		entry := ring[ringNotices:][:ringNoticeSize]
		if before[at] == nil || binary.NativeEndian.Uint64(ring[ringProduced:]) != 1 || binary.NativeEndian.Uint64(entry) != real {
			continue
		}
		next := ring[ringNotices+ringNoticeSize:][:ringNoticeSize]
		binary.NativeEndian.PutUint64(next, forged)
		binary.NativeEndian.PutUint64(next[8:], 64)
		binary.NativeEndian.PutUint64(next[16:], 99) // no such grant
		binary.NativeEndian.PutUint64(ring[ringProduced:], 2)
		lies++
		break // the other mapping shows the same bytes
	}
	if lies == 0 {
		t.Fatal("no ring has the notice of the write: the engines are not connected over shared memory")
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if b.PopInbound("a", forged) {
			t.Fatal("the target reports a transfer that never was")
		}
		if len(rings(t)) == 0 {
			break // the connection has ended
		}
	}
	if n := len(rings(t)); n > 0 {
		t.Errorf("%d rings are mapped: the connection goes on", n)
	}
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, real+1))
	arrived(t, b.Engine, "a", real+1)
	if b.PopInbound("a", forged) {
		t.Error("the target reports a transfer that never was")
	}
}
