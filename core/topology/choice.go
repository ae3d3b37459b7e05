// SPDX-License-Identifier: MIT

package topology

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mori/core/config"
)

// A Choice is the user's settings about NICs.
type Choice struct {
	Devices  string // MORI_RDMA_DEVICES: "a,b:2" for these in this order, "^a,b" for all others, "" for all
	HostNIC  int    // MORI_IO_RDMA_NIC_IDX: the index of the only NIC for host memory; -1 for none
	Affinity bool   // MORI_IO_RAIL_AFFINITY: both ends of a transfer use NICs of the same index
	Static   bool   // MORI_DISABLE_TOPO: NICs in order, GPU n begins with NIC n, wherever they are

	// Turn selects which of equally near NICs comes first for host memory. Processes of a host that
	// pass different turns spread over them.
	Turn int
}

// Configured reads the settings. The error names malformed ones, for the log; they get their
// defaults in the result.
func Configured() (Choice, error) {
	pin, err := config.Int(config.IORDMANICIdx, -1, 0, 1<<16)
	return Choice{
		Devices: config.Get(config.RDMADevices), HostNIC: pin,
		Affinity: config.Flag(config.IORailAffinity, false), Static: config.Flag(config.DisableTopo, false),
	}, err
}

// A device list: names, and whether they are excluded.
type deviceList struct {
	names   []string
	exclude bool
}

func parseDevices(s string) (deviceList, error) {
	var l deviceList
	s = strings.TrimSpace(s)
	s, l.exclude = strings.CutPrefix(s, "^")
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if strings.HasPrefix(name, "^") {
			return l, fmt.Errorf("%s=%q: ^ is allowed once, before the first name, and excludes the whole list", config.RDMADevices, s)
		}
		if !slices.Contains(l.names, name) {
			l.names = append(l.names, name)
		}
	}
	if len(l.names) == 0 && l.exclude {
		return l, fmt.Errorf("%s=%q: ^ without a name", config.RDMADevices, "^"+s)
	}
	return l, nil
}

// named reports whether a name of a list matches the port; a device name matches all its ports.
func (r RDMA) named(name string) bool {
	device, port, ok := strings.Cut(name, ":")
	if device != r.Device {
		return false
	}
	n, err := strconv.Atoi(port)
	return !ok || err == nil && n == r.Port
}

// allowed returns the ports that a list allows, in the order of the list if it names them, else by
// name.
func (l deviceList) allowed(ports []RDMA) ([]RDMA, error) {
	if err := l.check(ports); err != nil {
		return nil, err
	}
	if l.exclude || len(l.names) == 0 {
		return slices.DeleteFunc(slices.Clone(ports), func(p RDMA) bool { return slices.ContainsFunc(l.names, p.named) }), nil
	}
	var these []RDMA
	for _, name := range l.names {
		for _, p := range ports {
			if p.named(name) && !slices.Contains(these, p) {
				these = append(these, p)
			}
		}
	}
	return these, nil
}

// check returns an error for unknown names, also in an exclusion list: a misspelt name would allow
// the port that it should exclude.
func (l deviceList) check(ports []RDMA) error {
	var unknown []string
	for _, name := range l.names {
		if !slices.ContainsFunc(ports, func(p RDMA) bool { return p.named(name) }) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("%s names %s, but this host has %s: %w", config.RDMADevices, strings.Join(unknown, ", "), namesOf(ports), ErrUnknown)
}

func namesOf(ports []RDMA) string {
	if len(ports) == 0 {
		return "no RDMA device"
	}
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = p.Name()
	}
	return strings.Join(names, ", ")
}

// A Rail is a NIC that transfers may use.
type Rail struct {
	RDMA
	Index int `json:"index"` // index among the ports that MORI_RDMA_DEVICES allows, usable or not
}

// An Unused is a NIC that transfers do not use, with the reason.
type Unused struct {
	RDMA
	Why string `json:"why"`
}

// slowest is the fraction of the fastest port's speed below which a port is not used. Bytes striped
// over both would wait for it, and a much slower port is for management or broken.
const slowest = 0.5

// Rails returns the NICs that transfers may use, by index, and why the others are not used. A host
// without a NIC is not an error.
func (h *Host) Rails(o Choice) ([]Rail, []Unused, error) {
	list, err := parseDevices(o.Devices)
	if err != nil {
		return nil, nil, err
	}
	allowed, err := list.allowed(h.RDMA)
	if err != nil {
		return nil, nil, err
	}
	var unused []Unused
	for _, p := range h.RDMA {
		if !slices.Contains(allowed, p) {
			unused = append(unused, Unused{p, config.RDMADevices + "=" + o.Devices})
		}
	}
	most := mostly(allowed)
	var rails []Rail
	for i, p := range allowed {
		why := unfit(p)
		if why == "" && (list.exclude || len(list.names) == 0) {
			why = most.unlike(p, o.Static)
		}
		if why != "" {
			unused = append(unused, Unused{p, why})
			continue
		}
		rails = append(rails, Rail{p, i})
	}
	return rails, unused, nil
}

// common is what the usable ports of a host have in common.
type common struct {
	link    string
	fastest float64
}

// mostly finds the link layer with the highest total speed, and its fastest port.
func mostly(ports []RDMA) common {
	speed, fastest := map[string]float64{}, map[string]float64{}
	var most common
	for _, p := range ports {
		if unfit(p) != "" {
			continue
		}
		speed[p.Link] += max(p.Gbps, 1)
		fastest[p.Link] = max(fastest[p.Link], p.Gbps)
		if most.link == "" || speed[p.Link] > speed[most.link] {
			most.link = p.Link
		}
	}
	most.fastest = fastest[most.link]
	return most
}

// unlike returns why a working port is not used unless it is named. InfiniBand and Ethernet do not
// connect, so with both in use two hosts might choose different ones. A slow port delays transfers
// that are striped over it and others.
func (c common) unlike(p RDMA, slowToo bool) string {
	switch {
	case p.Link != c.link:
		return fmt.Sprintf("%s, and the ports with link layer %s have more total speed; name it in %s to use it", p.Link, c.link, config.RDMADevices)
	case !slowToo && p.Gbps > 0 && p.Gbps < c.fastest*slowest:
		return fmt.Sprintf("%g Gbit/s, while another port has %g; name it in %s to use it", p.Gbps, c.fastest, config.RDMADevices)
	}
	return ""
}

// unfit returns why a port cannot be used at all, "" if it can.
func unfit(p RDMA) string {
	switch {
	case p.Node != "" && p.Node != "CA":
		return "node type " + p.Node + ", which has no reliable connections that mori supports"
	case p.Fault != "":
		return p.Fault
	case !p.Up():
		return "port is " + strings.ToLower(orUnknown(p.State))
	}
	return ""
}

func orUnknown(s string) string {
	if s == "" {
		return "in an unknown state"
	}
	return s
}

// noRails is the error for a host without a usable NIC.
func noRails(unused []Unused) error {
	var errs []error
	for _, u := range unused {
		errs = append(errs, fmt.Errorf("%s: %s", u.Name(), u.Why))
	}
	if len(errs) == 0 {
		return ErrNoNIC
	}
	return fmt.Errorf("%w (%s)", ErrNoNIC, strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "))
}
