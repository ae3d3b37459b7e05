// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"
	"slices"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/atomics"
	"mori/core/fabric/fabrictest/internal/devices"
	"mori/core/fabric/fabrictest/internal/ending"
	"mori/core/fabric/fabrictest/internal/queues"
	"mori/core/fabric/fabrictest/internal/rig"
	"mori/core/fabric/fabrictest/internal/setup"
	"mori/core/fabric/fabrictest/internal/transfer"
)

// An Open makes a fresh provider for one case.
type Open = rig.Open

// A Place is where memory may be: on a device, as package device/devicetest makes them.
type Place = rig.Place

// A Memory is a buffer somewhere. Its methods fail the case.
type Memory = rig.Memory

// Main is TestMain for packages that own goroutines and descriptors: it runs the tests and fails if
// any are left after all of them.
//
//	func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m)) }
func Main(m *testing.M) int { return rig.Main(m) }

// TestDevice runs the cases of memory access on a provider that takes device memory, of which the
// first place, and the second if there is one, are. The names are under msg/near-far/case and rdm.
func TestDevice(t *testing.T, open Open, places ...Place) { devices.Test(t, open, places...) }

// TestHoles runs ops whose memory cannot be touched: it was unmapped, or is protected. The process
// lives, each op ends, and those of memory of the initiator fail. Short ones fail by themselves
// with EFAULT; others may end their connection.
func TestHoles(t *testing.T, open Open) { devices.TestHoles(t, open) }

// A group is cases on one subject: of both endpoint types, and of one of them only.
type group struct {
	name           string
	both, msg, rdm []rig.Case
}

var groups = []group{
	{name: "info", both: setup.InfoCases},
	{name: "connect", msg: setup.ConnectCases},
	{name: "state", both: setup.StateCases, msg: setup.StateMsgCases, rdm: setup.StateRDMCases},
	{name: "lifetime", both: setup.LifetimeCases, msg: setup.LifetimeMsgCases, rdm: setup.LifetimeRDMCases},
	{name: "message", both: transfer.MessageCases},
	{name: "rma", both: transfer.RMACases},
	{name: "order", both: transfer.OrderCases},
	{name: "denied", both: transfer.DeniedCases},
	{name: "atomic", both: slices.Concat(atomics.Cases, atomics.LoadCases, atomics.RefusedCases)},
	{name: "inject", both: transfer.InjectCases},
	{name: "level", both: transfer.LevelCases, rdm: transfer.LevelRDMCases},
	{name: "counter", both: queues.CounterCases},
	{name: "cancel", both: transfer.CancelCases},
	{name: "av", rdm: setup.AVCases},
	{name: "datagram", rdm: slices.Concat(ending.DatagramCases, ending.DatagramEndCases)},
	{name: "end", both: slices.Concat(ending.EndCases, ending.EndStateCases), msg: slices.Concat(ending.EndMsgCases, ending.EndConnectCases), rdm: ending.EndRDMCases},
	{name: "queue", both: queues.QueueCases, msg: queues.QueueMsgCases},
	{name: "wait", both: queues.WaitCases, msg: queues.WaitMsgCases},
	{name: "load", both: transfer.LoadCases},
	{name: "scale", both: transfer.ScaleCases},
}

// cases are those of g for endpoints of this type.
func (g *group) cases(typ fabric.EPType) []rig.Case {
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
			all = append(all, g.name+"/"+c.Name)
		}
	}
	slices.Sort(all)
	return all
}

// Test runs the suite on the provider that open makes, once for each endpoint type that it offers.
// It must offer those in must, and one at least.
func Test(t *testing.T, open Open, must ...fabric.EPType) {
	if _, err := rig.Best(t.Context(), open(t), 0); err != nil {
		t.Fatal(err)
	}
	for _, e := range rig.EPTypes {
		t.Run(e.Name, func(t *testing.T) {
			if _, err := rig.Best(t.Context(), open(t), e.Type); errors.Is(err, fabric.ErrNoData) && !slices.Contains(must, e.Type) {
				t.Skipf("the provider has no such endpoints: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				cases := g.cases(e.Type)
				if len(cases) == 0 {
					continue
				}
				t.Run(g.name, func(t *testing.T) {
					for _, c := range cases {
						t.Run(c.Name, func(t *testing.T) { c.Run(rig.New(t, open, e.Type)) })
					}
				})
			}
		})
	}
}
