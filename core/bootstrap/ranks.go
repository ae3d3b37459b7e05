// SPDX-License-Identifier: MIT

package bootstrap

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ranksText formats ranks with ranges: "rank 3", "ranks 3-7, 9".
func ranksText(ranks []int) string {
	ranks = slices.Sorted(slices.Values(ranks))
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		switch {
		case j == i:
			parts = append(parts, strconv.Itoa(ranks[i]))
		case j == i+1:
			parts = append(parts, strconv.Itoa(ranks[i]), strconv.Itoa(ranks[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[j]))
		}
		i = j + 1
	}
	if len(ranks) == 1 {
		return "rank " + parts[0]
	}
	return "ranks " + strings.Join(parts, ", ")
}

// have returns the verb for that many ranks.
func have(ranks []int) string {
	if len(ranks) == 1 {
		return "has"
	}
	return "have"
}

// The ranks form a tree: the parent of rank r is (r-1)/radix, so that ranks with near numbers,
// which are mostly on one host, have near parents.

func parentOf(rank, radix int) int { return (rank - 1) / radix }

func kidsOf(rank, radix, size int) []int {
	var kids []int
	for k := rank*radix + 1; k <= rank*radix+radix && k < size; k++ {
		kids = append(kids, k)
	}
	return kids
}
