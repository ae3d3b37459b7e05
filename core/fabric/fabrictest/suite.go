// SPDX-License-Identifier: MIT

package fabrictest

import (
	"context"
	"runtime/debug"
	"testing"
	"time"

	"mori/core/fabric"
)

// caseDeadline is far more than any case needs on a slow, busy machine under the race detector.
const caseDeadline = 90 * time.Second

// An Open makes a fresh provider for one case.
type Open func(testing.TB) fabric.Provider

// A testCase is one behaviour.
type testCase struct {
	name string
	run  func(*rig)
}

// Test runs the suite on the provider that open makes.
func Test(t *testing.T, open Open) {
	for _, group := range []struct {
		name  string
		cases []testCase
	}{
		{"info", infoCases},
		{"connect", connectCases},
		{"state", stateCases},
		{"message", messageCases},
		{"rma", rmaCases},
		{"denied", deniedCases},
		{"end", endCases},
		{"queue", queueCases},
		{"load", loadCases},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					c.run(newRig(t, open))
				})
			}
		})
	}
}

// A rig is what a case works with: the provider, and hosts on it that close in reverse order when the case ends.
type rig struct {
	testing.TB
	ctx      context.Context
	provider fabric.Provider
	info     *fabric.Info // the best answer for MSG and RMA
}

func newRig(tb testing.TB, open Open) *rig {
	tb.Helper()
	checkLeaks(tb)
	watch(tb)
	ctx, cancel := context.WithTimeout(context.Background(), caseDeadline/2)
	tb.Cleanup(cancel)
	r := &rig{TB: tb, ctx: ctx, provider: open(tb)}
	infos, err := r.provider.GetInfo(ctx, "", "", &fabric.Info{Caps: fabric.CapMSG | fabric.CapRMA, EPType: fabric.EPMsg})
	if err != nil || len(infos) == 0 {
		tb.Fatalf("no endpoints for messages and remote memory access: %v", err)
	}
	r.info = infos[0]
	return r
}

// watch ends the process if the case hangs.
func watch(tb testing.TB) {
	t := time.AfterFunc(caseDeadline, func() {
		debug.SetTraceback("all")
		panic(tb.Name() + " hangs")
	})
	tb.Cleanup(func() { t.Stop() })
}

// must fails the case if err is not nil.
func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}
