// SPDX-License-Identifier: MIT

package survey

import (
	"strings"
	"testing"
)

func TestWeakLinks(t *testing.T) {
	for _, c := range []struct {
		what  string
		links []link
		want  string
	}{
		{"one GPU", nil, ""},
		{"all by NVLink", []link{{0, 1, "NVLink"}, {0, 2, "NVLink"}, {1, 2, "NVLink"}}, ""},
		{"all by PCIe", []link{{0, 1, "PCIe"}, {0, 2, "PCIe"}, {1, 2, "PCIe"}}, "between all GPUs: over PCIe, without NVLink or xGMI"},
		{"two by PCIe", []link{{0, 1, "PCIe"}}, "between GPUs 0-1: over PCIe, without NVLink or xGMI"},
		{"a bridge for two", []link{{0, 1, "NVLink"}, {0, 2, "PCIe"}, {1, 2, ""}},
			"between GPUs 1-2: no peer access, so copies use host memory|between GPUs 0-2: over PCIe, without NVLink or xGMI"},
	} {
		if got := weakLinks(c.links); got == nil || strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q", c.what, got)
		}
	}
}

func TestGroups(t *testing.T) {
	var g groups
	for n, what := range []string{"NVLink", "PCIe", "NVLink", "NVLink"} {
		g.add(what, n)
	}
	got := strings.Join(g.write(func(link, numbers string) string { return numbers + " by " + link }), "; ")
	if got != "0, 2, 3 by NVLink; 1 by PCIe" {
		t.Error(got)
	}
}
