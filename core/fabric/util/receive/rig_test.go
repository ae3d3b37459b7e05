// SPDX-License-Identifier: MIT

package receive

import (
	"context"
	"sync"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newCQ(t testing.TB, size int) *util.CQ {
	q, err := util.NewCQ(size)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func newCounter(t testing.TB, unit fabric.CountUnit) *util.Counter {
	c, err := util.NewCounter(unit)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func readOne(t *testing.T, cq *util.CQ) fabric.Completion {
	t.Helper()
	var c [1]fabric.Completion
	if _, err := cq.Read(c[:]); err != nil {
		t.Fatal(err)
	}
	return c[0]
}

func start(wg *sync.WaitGroup, fn func()) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		fn()
	}()
}
