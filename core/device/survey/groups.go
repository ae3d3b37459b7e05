// SPDX-License-Identifier: MIT

package survey

import (
	"strconv"
	"strings"
)

// Groups are numbers of GPUs by what is said of them, in the order in which it was first said.
type groups struct {
	said    []string
	numbers map[string][]string
}

func (g *groups) add(what string, number int) {
	if g.numbers == nil {
		g.numbers = make(map[string][]string)
	}
	if g.numbers[what] == nil {
		g.said = append(g.said, what)
	}
	g.numbers[what] = append(g.numbers[what], strconv.Itoa(number))
}

func (g *groups) write(line func(what, numbers string) string) []string {
	var lines []string
	for _, what := range g.said {
		lines = append(lines, line(what, strings.Join(g.numbers[what], ", ")))
	}
	return lines
}
