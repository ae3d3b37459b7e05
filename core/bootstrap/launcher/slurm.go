// SPDX-License-Identifier: MIT

package launcher

import (
	"fmt"
	"strconv"
	"strings"
)

// Steps with numbers from here on are not started by srun: the batch script, an interactive shell.
// They have SLURM_PROCID=0 all the same.
const firstSpecialStep = 0xfffffff0

// inStep reports whether srun started this process.
func inStep(get func(string) string) bool {
	step, err := strconv.ParseUint(get("SLURM_STEP_ID"), 10, 32)
	return err == nil && step < firstSpecialStep && get("SLURM_PROCID") != ""
}

// slurm returns how many ranks of the step are on this host, 0 if it does not say, and the host of
// rank 0, which is the first of the step but with --distribution=arbitrary.
func (e *env) slurm(size int) (local int, host string) {
	const nodes, tasks, node = "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"
	if list := e.get(nodes); list != "" {
		first, err := firstHost(list)
		if err != nil {
			e.errs = append(e.errs, fmt.Errorf("%s=%q: %w", nodes, list, err))
		}
		host = first
	}
	if list := e.get(tasks); list != "" && e.get(node) != "" {
		n, err := tasksOf(list, e.number(node, MaxSize, 0))
		if err != nil || n > size {
			e.errs = append(e.errs, fmt.Errorf("%s=%q is inconsistent with %s=%s and %d ranks", tasks, list, node, e.get(node), size))
			return 0, host
		}
		local = n
	}
	return local, host
}

// firstHost is the first name in a list such as "node[01-04,7],x" or "rack[1-2]n[5,7]".
func firstHost(list string) (string, error) {
	var name strings.Builder
	for rest := list; rest != "" && rest[0] != ','; {
		if rest[0] != '[' {
			n := strings.IndexAny(rest, "[,")
			if n < 0 {
				n = len(rest)
			}
			name.WriteString(rest[:n])
			rest = rest[n:]
			continue
		}
		inside, after, ok := strings.Cut(rest[1:], "]")
		first := inside[:len(inside)-len(strings.TrimLeft(inside, "0123456789"))]
		if next := inside[len(first):]; !ok || first == "" || next != "" && next[0] != '-' && next[0] != ',' {
			return "", fmt.Errorf("want names such as node[01-04,7]")
		}
		name.WriteString(first)
		rest = after
	}
	if name.Len() == 0 || strings.ContainsAny(name.String(), "] \t") {
		return "", fmt.Errorf("want names such as node[01-04,7]")
	}
	return name.String(), nil
}

// tasksOf reads the number for one node from a list such as "2(x3),1".
func tasksOf(list string, node int) (int, error) {
	for part := range strings.SplitSeq(list, ",") {
		count, times, repeated := strings.Cut(strings.TrimSpace(part), "(x")
		n, err := strconv.Atoi(count)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%q is not a number of tasks", part)
		}
		many := 1
		if repeated {
			if many, err = strconv.Atoi(strings.TrimSuffix(times, ")")); err != nil || many < 1 || !strings.HasSuffix(times, ")") {
				return 0, fmt.Errorf("%q is not a number of tasks", part)
			}
		}
		if node < many {
			return n, nil
		}
		node -= many
	}
	return 0, fmt.Errorf("it has no entry for node %d", node)
}
