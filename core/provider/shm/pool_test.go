// SPDX-License-Identifier: MIT

package shm

import (
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
)

// countingCopier stands in for a data path whose copies take no time.
type countingCopier struct {
	bytes atomic.Uint64
	ended chan error
}

func (c *countingCopier) copyJob(_ *job, s *slice) error {
	c.bytes.Add(s.n)
	return nil
}

func (c *countingCopier) finishJob(_ *job, err error) { c.ended <- err }

func poolJob(c *countingCopier, n uint64) *job {
	op := &fabric.Op{Kind: fabric.OpWrite, Seg: fabric.Seg{Addr: 1 << 20, Len: n}, RSeg: fabric.RSeg{Len: n}}
	return &job{path: c, op: op, walk: newWalk(op, n, 1<<30)}
}

// A job may arrive before the workers poll, while one lingers, at the moment when that one parks,
// and long after.
func TestNoJobIsForgotten(t *testing.T) {
	p := newPool()
	c := &countingCopier{ended: make(chan error, 1)}
	const n = 3 << 20
	var want uint64
	for i := range 400 {
		p.add(poolJob(c, n))
		want += n
		select {
		case err := <-c.ended:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("job %d was never copied", i)
		}
		time.Sleep(time.Duration(i%40) * lingerTime / 20)
	}
	if got := c.bytes.Load(); got != want {
		t.Errorf("%d bytes copied, want %d", got, want)
	}
	closesSoon(t, p)
}

func TestPoolClosesWhileAWorkerLingers(t *testing.T) {
	for range 50 {
		p := newPool()
		c := &countingCopier{ended: make(chan error, 1)}
		p.add(poolJob(c, 1))
		<-c.ended
		closesSoon(t, p)
	}
}

func closesSoon(t *testing.T, p *pool) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		p.close()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the pool does not close")
	}
}
