// SPDX-License-Identifier: MIT

package launcher

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Run identifies the launch among all others.
func (l Launch) Run() ([]string, error) {
	if l.By == dialectHydra.by { // its variables are alike in all runs, so it is the process that starts the ranks of a host
		proxy, err := ancestor("hydra_pmi_prox")
		return []string{l.By, proxy}, err
	}
	for _, v := range l.run {
		if !strings.HasSuffix(v, "=") {
			return append([]string{l.By}, l.run...), nil
		}
	}
	return nil, fmt.Errorf("none of %s is set", strings.ReplaceAll(strings.Join(l.run, ", "), "=", ""))
}

// ancestor finds the process whose name starts with comm among those that started this one, and
// says which it is, uniquely on this host.
func ancestor(comm string) (string, error) {
	for pid := os.Getppid(); pid > 1; {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return "", err
		}
		// pid (comm) state ppid ...: comm may hold anything, so the last parenthesis counts. The start
		// time is the 20th after it.
		s := string(b)
		open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
		fields := strings.Fields(s[end+1:])
		if open < 0 || end < open || len(fields) < 20 {
			return "", fmt.Errorf("/proc/%d/stat is malformed", pid)
		}
		if strings.HasPrefix(s[open+1:end], comm) {
			return fmt.Sprintf("%s %d %s", comm, pid, fields[19]), nil
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("no ancestor of this process is %s", comm)
}
