// SPDX-License-Identifier: MIT

package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
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

// A group is cases on one subject: of both endpoint types, and of one of them only.
type group struct {
	name           string
	both, msg, rdm []testCase
}

var groups = []group{
	{name: "info", both: infoCases},
	{name: "connect", msg: connectCases},
	{name: "state", both: stateCases, msg: stateMsgCases, rdm: stateRDMCases},
	{name: "lifetime", both: lifetimeCases, msg: lifetimeMsgCases, rdm: lifetimeRDMCases},
	{name: "message", both: messageCases},
	{name: "rma", both: rmaCases},
	{name: "order", both: orderCases},
	{name: "denied", both: deniedCases},
	{name: "atomic", both: slices.Concat(atomicCases, atomicLoadCases, atomicRefusedCases)},
	{name: "inject", both: injectCases},
	{name: "level", both: levelCases, rdm: levelRDMCases},
	{name: "counter", both: counterCases},
	{name: "cancel", both: cancelCases},
	{name: "av", rdm: avCases},
	{name: "datagram", rdm: slices.Concat(datagramCases, datagramEndCases)},
	{name: "end", both: slices.Concat(endCases, endStateCases), msg: slices.Concat(endMsgCases, endConnectCases), rdm: endRDMCases},
	{name: "queue", both: queueCases, msg: queueMsgCases},
	{name: "wait", both: waitCases, msg: waitMsgCases},
	{name: "load", both: loadCases},
	{name: "scale", both: scaleCases},
}

// epTypes are the endpoint types and what the subtests of each are under.
var epTypes = []struct {
	name string
	typ  fabric.EPType
}{{"msg", fabric.EPMsg}, {"rdm", fabric.EPRDM}}

// cases are those of g for endpoints of this type.
func (g *group) cases(typ fabric.EPType) []testCase {
	if typ == fabric.EPMsg {
		return slices.Concat(g.both, g.msg)
	}
	return slices.Concat(g.both, g.rdm)
}

// Cases lists all cases as "group/case", sorted.
func Cases() []string {
	var all []string
	for _, g := range groups {
		for _, c := range slices.Concat(g.both, g.msg, g.rdm) {
			all = append(all, g.name+"/"+c.name)
		}
	}
	slices.Sort(all)
	return all
}

// Test runs the suite on the provider that open makes, once for each endpoint type that it offers.
// It must offer those in must, and one at least.
func Test(t *testing.T, open Open, must ...fabric.EPType) {
	if _, err := best(t.Context(), open(t), 0); err != nil {
		t.Fatal(err)
	}
	for _, e := range epTypes {
		t.Run(e.name, func(t *testing.T) {
			if _, err := best(t.Context(), open(t), e.typ); errors.Is(err, fabric.ErrNoData) && !slices.Contains(must, e.typ) {
				t.Skipf("the provider has no such endpoints: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				cases := g.cases(e.typ)
				if len(cases) == 0 {
					continue
				}
				t.Run(g.name, func(t *testing.T) {
					for _, c := range cases {
						t.Run(c.name, func(t *testing.T) { c.run(newRig(t, open, e.typ)) })
					}
				})
			}
		})
	}
}

// allModes: the suite follows every rule.
const (
	allModes   = ^fabric.Mode(0)
	allMRModes = ^fabric.MRMode(0)
)

// hints ask for endpoints of this type with these capabilities.
func hints(typ fabric.EPType, caps fabric.Caps) *fabric.Info {
	return &fabric.Info{EPType: typ, Caps: caps, Mode: allModes, MRMode: allMRModes}
}

// best is the best answer for messages, RMA, and atomics if there are any.
func best(ctx context.Context, p fabric.Provider, typ fabric.EPType) (*fabric.Info, error) {
	var last error
	for _, caps := range []fabric.Caps{fabric.CapMSG | fabric.CapRMA | fabric.CapAtomic, fabric.CapMSG | fabric.CapRMA} {
		infos, err := p.GetInfo(ctx, "", "", hints(typ, caps))
		if err == nil && len(infos) > 0 {
			return infos[0], nil
		}
		last = err
	}
	return nil, fmt.Errorf("endpoints of type %d for messages and remote memory access: %w", typ, last)
}

// A rig is what a case works with: the provider, and hosts on it that close in reverse order when
// the case ends.
type rig struct {
	testing.TB
	ctx      context.Context
	provider fabric.Provider
	info     *fabric.Info // what best answered
}

// newRig makes a rig for endpoints of a type, or of the one that the provider offers first if it is
// 0.
func newRig(tb testing.TB, open Open, typ fabric.EPType) *rig {
	tb.Helper()
	checkLeaks(tb)
	watch(tb)
	ctx, cancel := context.WithTimeout(context.Background(), caseDeadline/2)
	tb.Cleanup(cancel)
	r := &rig{TB: tb, ctx: ctx, provider: open(tb)}
	in, err := best(ctx, r.provider, typ)
	if err != nil {
		tb.Fatal(err)
	}
	r.info = in
	return r
}

// rdm reports whether the endpoints are reliable datagrams.
func (r *rig) rdm() bool { return r.info.EPType == fabric.EPRDM }

// fatal reports whether a refused access may end the connection.
func (r *rig) fatal() bool { return r.info.Mode&fabric.ModeDenialFatal != 0 }

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
