// SPDX-License-Identifier: MIT

package core

import (
	"errors"
	"log/slog"
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

// TestRegistrations checks what the providers say of themselves against what they are.
func TestRegistrations(t *testing.T) {
	preferences := map[int]string{}
	for _, x := range transports {
		if name := x.open(Options{Log: slog.Default()}).Name(); name != x.Name {
			t.Errorf("provider %q is registered as %q", name, x.Name)
		}
		if other := preferences[x.Preference]; other != "" {
			t.Errorf("%s and %s have preference %d", other, x.Name, x.Preference)
		}
		preferences[x.Preference] = x.Name
		if !x.HostMemory && !x.GPUMemory {
			t.Errorf("%s serves no memory", x.Name)
		}
		d := x.Diagnose(fabric.Peers{OtherHost: x.Scope == fabric.ScopeNetwork, GPUMemory: !x.HostMemory})
		if d.Path == "" && len(d.Reasons) == 0 || d.Path != "" && !strings.HasPrefix(d.Path, x.Name) {
			t.Errorf("%s has neither a path nor a reason: %+v", x.Name, d)
		}
		if far := Unfit(x.Name, false) == ""; far != (ListenAddr(x.Name, "") != "") {
			t.Errorf("%s reaches other hosts: %v, its address is %q", x.Name, far, ListenAddr(x.Name, ""))
		}
	}
	r, err := Registry(Options{Log: slog.Default()})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Names(), ","); got != "shm,verbs,tcp,p2p" {
		t.Errorf("order of preference %s, want shm,verbs,tcp,p2p", got)
	}
	if Pins("tcp") || !Pins("verbs") || Pins("none") || HasRDMA([]string{"shm", "tcp"}) {
		t.Error("only verbs pins")
	}
}

func TestUnfit(t *testing.T) {
	for name, far := range map[string]bool{"p2p": false, "shm": false, "verbs": true, "tcp": true} {
		if Unfit(name, true) != "" || (Unfit(name, false) == "") != far {
			t.Errorf("%s: %q on this host, %q to another", name, Unfit(name, true), Unfit(name, false))
		}
	}
}
