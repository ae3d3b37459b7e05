// SPDX-License-Identifier: MIT

package survey

import (
	"fmt"
	"strings"

	"mori/core/device"
)

// A link is between two GPUs.
type link struct {
	a, b int
	kind string // "NVLink", "xGMI", "PCIe", "" without peer access
}

// linksOf asks the drivers about each pair. One that reaches the other and is not reached counts as
// not reached.
func linksOf(devices []*device.Device) []link {
	var all []link
	for i, a := range devices {
		for _, b := range devices[i+1:] {
			l := link{a: a.Ordinal, b: b.Ordinal}
			there, err := a.Reach(b)
			back, err2 := b.Reach(a)
			if err == nil && err2 == nil && there.Access && back.Access {
				l.kind = there.Link
			}
			all = append(all, l)
		}
	}
	return all
}

// WeakLinks says between which GPUs copies are slower than they could be.
func WeakLinks(devices []*device.Device) []string { return weakLinks(linksOf(devices)) }

func weakLinks(links []link) []string {
	pairs := map[string][]string{}
	for _, l := range links {
		pairs[l.kind] = append(pairs[l.kind], fmt.Sprintf("%d-%d", l.a, l.b))
	}
	reasons := []string{}
	for _, weak := range []struct{ kind, why string }{
		{"", "no peer access, so copies use host memory"}, {"PCIe", "over PCIe, without NVLink or xGMI"},
	} {
		if these := pairs[weak.kind]; len(these) == len(links) && len(these) > 1 {
			reasons = append(reasons, "between all GPUs: "+weak.why)
		} else if len(these) > 0 {
			reasons = append(reasons, fmt.Sprintf("between GPUs %s: %s", strings.Join(these, ", "), weak.why))
		}
	}
	return reasons
}
