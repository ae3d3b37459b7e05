// SPDX-License-Identifier: MIT

package core

import (
	"errors"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/native/verbs/verbstest"
)

// TestTransports: RDMA has the verbs provider where a device can be used; else it says why not, and
// does without.
func TestTransports(t *testing.T) {
	families := func(names ...string) map[string][2]string {
		host, gpu := strings.Join(names, ","), strings.Join(append([]string{"p2p"}, names...), ",")
		return map[string][2]string{"RDMA": {host, gpu}, "TCP": {"tcp", "tcp"}, "XGMI": {"", "p2p"}}
	}
	check := func(all map[string][2]string, missing string) {
		t.Helper()
		for backend, want := range all {
			f, err := Transports(backend)
			if got := [2]string{strings.Join(f.Host, ","), strings.Join(f.GPU, ",")}; err != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", backend, got, err, want)
			}
			if said := strings.Join(f.Missing, ""); backend == "RDMA" && (said == "") != (missing == "") || !strings.Contains(said, missing) && backend == "RDMA" {
				t.Errorf("%s: missing %q, want %q", backend, said, missing)
			}
		}
	}
	if _, err := Transports("FABRIC"); !errors.Is(err, fabric.ErrNotSupported) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("FABRIC: %v", err)
	}
	if _, err := Transports("pigeon"); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("pigeon: %v", err)
	}
	verbstest.Need(t)
	check(families("shm", "verbs", "tcp"), "")
	verbstest.NeedEmulated(t)
	verbstest.PortDown(t, 0)
	verbstest.PortDown(t, 1)
	check(families("shm", "tcp"), "port is down")
	verbstest.Count(t, 0)
	check(families("shm", "tcp"), "no active RDMA device on this host")
}

func TestUnfit(t *testing.T) {
	for name, far := range map[string]bool{"p2p": false, "shm": false, "verbs": true, "tcp": true} {
		if Unfit(name, true) != "" || (Unfit(name, false) == "") != far {
			t.Errorf("%s: %q on this host, %q to another", name, Unfit(name, true), Unfit(name, false))
		}
	}
}
