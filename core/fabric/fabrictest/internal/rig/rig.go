// SPDX-License-Identifier: MIT

package rig

import (
	"context"
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	"mori/core/fabric"
)

// CaseDeadline is far more than any case needs on a slow, busy machine under the race detector.
const CaseDeadline = 90 * time.Second

// An Open makes a fresh provider for one case.
type Open func(testing.TB) fabric.Provider

// A Case is one behaviour.
type Case struct {
	Name string
	Run  func(*Rig)
}

// AllModes and AllMRModes are the modes of hints: the suite follows every rule.
const (
	AllModes   = ^fabric.Mode(0)
	allMRModes = ^fabric.MRMode(0)
)

// Hints ask for endpoints of this type with these capabilities.
func Hints(typ fabric.EPType, caps fabric.Caps) *fabric.Info {
	return &fabric.Info{EPType: typ, Caps: caps, Mode: AllModes, MRMode: allMRModes}
}

// Best is the best answer for messages, RMA, and atomics if there are any.
func Best(ctx context.Context, p fabric.Provider, typ fabric.EPType) (*fabric.Info, error) {
	var last error
	for _, caps := range []fabric.Caps{fabric.CapMSG | fabric.CapRMA | fabric.CapAtomic, fabric.CapMSG | fabric.CapRMA} {
		infos, err := p.GetInfo(ctx, "", "", Hints(typ, caps))
		if err == nil && len(infos) > 0 {
			return infos[0], nil
		}
		last = err
	}
	return nil, fmt.Errorf("endpoints of type %d for messages and remote memory access: %w", typ, last)
}

// A Rig is what a case works with: the provider, and hosts on it that close in reverse order when
// the case ends.
type Rig struct {
	testing.TB
	Ctx      context.Context
	Provider fabric.Provider
	Info     *fabric.Info // what Best answered
}

// New makes a rig for endpoints of a type, or of the one that the provider offers first if it is
// 0.
func New(tb testing.TB, open Open, typ fabric.EPType) *Rig {
	tb.Helper()
	checkLeaks(tb)
	watch(tb)
	ctx, cancel := context.WithTimeout(context.Background(), CaseDeadline/2)
	tb.Cleanup(cancel)
	r := &Rig{TB: tb, Ctx: ctx, Provider: open(tb)}
	in, err := Best(ctx, r.Provider, typ)
	if err != nil {
		tb.Fatal(err)
	}
	r.Info = in
	return r
}

// RDM reports whether the endpoints are reliable datagrams.
func (r *Rig) RDM() bool { return r.Info.EPType == fabric.EPRDM }

// DenialEnds reports whether a refused access may end the connection.
func (r *Rig) DenialEnds() bool { return r.Info.Mode&fabric.ModeDenialFatal != 0 }

// watch ends the process if the case hangs.
func watch(tb testing.TB) {
	t := time.AfterFunc(CaseDeadline, func() {
		debug.SetTraceback("all")
		panic(tb.Name() + " hangs")
	})
	tb.Cleanup(func() { t.Stop() })
}

// Must fails the case if err is not nil.
func (r *Rig) Must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// DataKinds are the kinds of ops that have a peer.
var DataKinds = []fabric.OpKind{fabric.OpSend, fabric.OpWrite, fabric.OpRead}

// EPTypes are the endpoint types and what the subtests of each are under.
var EPTypes = []struct {
	Name string
	Type fabric.EPType
}{{"msg", fabric.EPMsg}, {"rdm", fabric.EPRDM}}
