// SPDX-License-Identifier: MIT

package fabrictest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

func TestEachCaseHasAName(t *testing.T) {
	all := Cases()
	if !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Error("the list of cases is not sorted, or names one twice")
	}
	listed := 0
	for _, g := range groups {
		listed += len(g.both) + len(g.msg) + len(g.rdm)
		for _, typ := range []fabric.EPType{fabric.EPMsg, fabric.EPRDM} {
			for _, c := range g.cases(typ) {
				if name := g.name + "/" + c.Name; !slices.Contains(all, name) || c.Run == nil || strings.Count(name, "/") != 1 {
					t.Errorf("%q is not a name, or does nothing", name)
				}
			}
		}
	}
	if listed != len(all) {
		t.Errorf("%d cases, and %d in the list", listed, len(all))
	}
}
