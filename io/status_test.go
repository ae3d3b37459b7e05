// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"sync"
	"testing"
	"time"
)

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestFirstErrorStays(t *testing.T) {
	s := NewStatus()
	s.Update(CodeInProgress, "")
	s.Update(CodeErrRDMAOp, "cable cut")
	s.Update(CodeSuccess, "late")
	if s.Code() != CodeErrRDMAOp || s.Message() != "cable cut" {
		t.Errorf("%v %q after a late success, want the first error", s.Code(), s.Message())
	}
	s.SetCode(CodeSuccess)
	if s.Code() != CodeSuccess {
		t.Errorf("SetCode left %v", s.Code())
	}
}

func TestWait(t *testing.T) {
	ctx := deadline(t)
	if c := NewStatus().Wait(ctx); c != CodeInit {
		t.Errorf("waiting on INIT gave %v", c)
	}
	s := NewStatus()
	s.Update(CodeInProgress, "")
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if c := s.Wait(ctx); c != CodeErrGPUOp {
				t.Errorf("waiter saw %v", c)
			}
		}()
	}
	s.Update(CodeInProgress, "still")
	s.SetCode(CodeInProgress)
	s.Update(CodeErrGPUOp, "x")
	wg.Wait()

	late := NewStatus()
	late.Update(CodeInProgress, "")
	short, cancel := context.WithCancel(ctx)
	cancel()
	if c := late.Wait(short); c != CodeInProgress {
		t.Errorf("a cancelled wait gave %v", c)
	}
}
