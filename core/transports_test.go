// SPDX-License-Identifier: MIT

package core

import (
	"errors"
	"strings"
	"testing"

	"mori/core/fabric"
)

func TestTransports(t *testing.T) {
	for backend, want := range map[string][2]string{"RDMA": {"shm,tcp", "p2p,shm,tcp"}, "TCP": {"tcp", "tcp"}, "XGMI": {"", "p2p"}} {
		f, err := Transports(backend)
		if got := [2]string{strings.Join(f.Host, ","), strings.Join(f.GPU, ",")}; err != nil || got != want || (backend == "RDMA") != (len(f.Missing) > 0) {
			t.Errorf("%s: %q, missing %v, %v", backend, got, f.Missing, err)
		}
	}
	if _, err := Transports("FABRIC"); !errors.Is(err, fabric.ErrNotSupported) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("FABRIC: %v", err)
	}
	if _, err := Transports("pigeon"); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("pigeon: %v", err)
	}
}

func TestUnfit(t *testing.T) {
	for name, far := range map[string]bool{"p2p": false, "shm": false, "tcp": true} {
		if Unfit(name, true) != "" || (Unfit(name, false) == "") != far {
			t.Errorf("%s: %q on this host, %q to another", name, Unfit(name, true), Unfit(name, false))
		}
	}
}
