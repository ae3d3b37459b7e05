// SPDX-License-Identifier: MIT

package team

import (
	"slices"
	"testing"
)

func TestHostsAreWhatMapsTheSame(t *testing.T) {
	cases := []struct {
		name   string
		views  []view
		leader []int
		crowd  []bool
	}{
		{"one host", []view{{1, []int{0, 1}, 2, []int{0, 1}}, {2, []int{0, 1}, 2, []int{0, 1}}}, []int{0, 0}, []bool{false, false}},
		{"one host, more PEs than cores", []view{{1, []int{0}, 1, []int{0, 1}}, {2, []int{0}, 1, []int{0, 1}}}, []int{0, 0}, []bool{true, true}},
		{"one host, each PE bound to a core of its own", []view{{1, []int{0}, 1, []int{0, 1}}, {2, []int{1}, 1, []int{0, 1}}}, []int{0, 0}, []bool{false, false}},
		{"one process that uses one core of many", []view{{1, []int{0, 1, 2, 3}, 1, []int{0, 1}}, {1, []int{0, 1, 2, 3}, 1, []int{0, 1}}}, []int{0, 0}, []bool{true, true}},
		{"two hosts", []view{{1, []int{0, 1}, 2, []int{0, 2}}, {2, []int{0, 1}, 2, []int{1}}, {3, []int{0, 1}, 2, []int{0, 2}}}, []int{0, 1, 0}, []bool{false, false, false}},
		{"one that maps the others, which do not map it", []view{{1, []int{0, 1, 2, 3}, 4, []int{0, 1, 2}}, {2, []int{0, 1, 2, 3}, 4, []int{1, 2}}, {3, []int{0, 1, 2, 3}, 4, []int{1, 2}}}, []int{0, 1, 1}, []bool{false, false, false}},
	}
	for _, c := range cases {
		if leader, crowd := hosts(c.views); !slices.Equal(leader, c.leader) || !slices.Equal(crowd, c.crowd) {
			t.Errorf("%s: %v %v, want %v %v", c.name, leader, crowd, c.leader, c.crowd)
		}
	}
}
