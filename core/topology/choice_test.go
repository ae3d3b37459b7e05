// SPDX-License-Identifier: MIT

package topology

import (
	"slices"
	"testing"

	"mori/core/config"
	"mori/core/decode/decodetest"
)

func TestConfigured(t *testing.T) {
	set := map[string]string{}
	config.SetLookup(func(name string) (string, bool) { v, ok := set[name]; return v, ok })
	defer config.SetLookup(nil)
	if o, err := Configured(); err != nil || o != noPin {
		t.Errorf("nothing set: %+v, %v", o, err)
	}
	set = map[string]string{"MORI_RDMA_DEVICES": "^a", "MORI_IO_RDMA_NIC_IDX": "3", "MORI_IO_RAIL_AFFINITY": "1", "MORI_DISABLE_TOPO": "on"}
	if o, err := Configured(); err != nil || o != (Choice{Devices: "^a", HostNIC: 3, Affinity: true, Static: true}) {
		t.Errorf("all set: %+v, %v", o, err)
	}
	set["MORI_IO_RDMA_NIC_IDX"] = "-1"
	if o, err := Configured(); err == nil || o.HostNIC != -1 || !o.Affinity {
		t.Errorf("a malformed pin: %+v, %v", o, err)
	}
}

// FuzzDevices: no list breaks anything, and what it leaves is of this host, each port once; a list
// and its reverse together leave all.
func FuzzDevices(f *testing.F) {
	for _, s := range []string{"", "a", "^a", "a,b:2", "b", "^b:1,a", "^", ",", "a:", "a:x", "a,^b", " a , a ", "b:2,b"} {
		f.Add(s)
	}
	ports := []RDMA{{Device: "a", Port: 1}, {Device: "b", Port: 1}, {Device: "b", Port: 2}}
	f.Fuzz(func(t *testing.T, s string) {
		var l deviceList
		var err error
		decodetest.Bounded(t, len(s), func() { l, err = parseDevices(s) })
		if err != nil {
			return
		}
		some, err := l.allowed(ports)
		if err != nil {
			return
		}
		for i, p := range some {
			if !slices.Contains(ports, p) || slices.Contains(some[:i], p) {
				t.Fatalf("%q leaves %v", s, some)
			}
		}
		if l.exclude = !l.exclude; len(l.names) > 0 {
			if rest, err := l.allowed(ports); err != nil || len(rest)+len(some) != len(ports) {
				t.Fatalf("%q leaves %v, and its reverse %v, %v", s, some, rest, err)
			}
		}
	})
}
