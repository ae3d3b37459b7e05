// SPDX-License-Identifier: MIT

package verbs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"mori/native/verbs"
)

// A burst is a batch of writes of 8 bytes that is posted and polled again and again.
type burst struct {
	*end
	wrs  []verbs.SendWR
	sges []verbs.SGE
	wcs  []verbs.WC
}

func newBurst(r *rig, n int) *burst {
	r.Helper()
	a, _ := r.pair(verbs.QPInit{SendWR: 64, RecvWR: 1, SendSGE: 1, RecvSGE: 1})
	m := r.region(4096, all)
	u := &burst{a, make([]verbs.SendWR, n), []verbs.SGE{m.sge(0, 8)}, make([]verbs.WC, n)}
	for i := range u.wrs {
		u.wrs[i] = verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: m.addr + 64, RKey: m.Remote, Count: 1}
	}
	return u
}

// once posts the batch, and polls until all of it is done.
func (u *burst) once() {
	if n, err := u.PostSend(u.wrs, u.sges); n != len(u.wrs) || err != nil {
		u.Fatalf("%d of %d were taken: %v", n, len(u.wrs), err)
	}
	deadline := time.Now().Add(patience)
	for left := len(u.wrs); left > 0; {
		n, err := u.send.Poll(u.wcs[:left])
		if err != nil || n == 0 && time.Now().After(deadline) {
			u.Fatalf("%d are left: %v", left, err)
		}
		for _, wc := range u.wcs[:n] {
			if wc.Status != verbs.StatusSuccess {
				u.Fatal(wc.Status)
			}
		}
		left -= n
	}
}

func TestPostAndPollAllocateNothing(t *testing.T) {
	u := newBurst(newRig(t), 16)
	if n := testing.AllocsPerRun(20, u.once); n > 0 {
		t.Errorf("%v allocations", n)
	}
	recvs := make([]verbs.RecvWR, 1)
	if n := testing.AllocsPerRun(20, func() { _, _ = u.PostRecv(recvs, nil) }); n > 0 {
		t.Errorf("%v allocations of a receive, or of a full queue", n)
	}
	h, err := u.ctx.NewChannel()
	u.ok(err)
	u.closes(h)
	if n := testing.AllocsPerRun(20, func() { _, _ = h.Next() }); n > 0 {
		t.Errorf("%v allocations of no event", n)
	}
}

// BenchmarkPostAndPoll measures how long a write takes of a batch, and which part of it the same
// program in C would take.
func BenchmarkPostAndPoll(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("batch=", n), func(b *testing.B) {
			r := newRig(b)
			u := newBurst(r, n)
			u.once()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				u.once()
			}
			each := float64(b.Elapsed().Nanoseconds()) / float64(b.N*n)
			b.StopTimer()
			b.ReportMetric(each, "ns/write")
			b.ReportMetric(rawNanoseconds(b, n, r.gid.Index)/each, "of-raw")
		})
	}
}

// BenchmarkEmptyPoll is the price of the way into C and back.
func BenchmarkEmptyPoll(b *testing.B) {
	q := newRig(b).cq(16, 0, 0)
	wcs := make([]verbs.WC, 16)
	for b.Loop() {
		if n, err := q.Poll(wcs); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}

// rawNanoseconds is what a write takes in testdata/raw.c.
func rawNanoseconds(b *testing.B, batch, gid int) float64 {
	b.Helper()
	raw := filepath.Join(b.TempDir(), "raw")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	args := []string{"-std=gnu11", "-O2", "-Wall", "-o", raw, filepath.Join("testdata", "raw.c"), "-l:libibverbs.so.1"}
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		args = append(args, "-L"+dir)
	}
	if out, err := exec.CommandContext(ctx, compiler(b), args...).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(ctx, raw, strconv.Itoa(batch), "100", strconv.Itoa(gid)).CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	ns, err := strconv.ParseFloat(string(bytes.TrimSpace(out)), 64)
	if err != nil {
		b.Fatal(err)
	}
	return ns
}
