// SPDX-License-Identifier: MIT

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Name returns the device's name.
func (c Context) Name() string {
	name, _ := c.path()
	return name
}

// path returns the device's name and its folder in sysfs.
func (c Context) path() (name, path string) {
	var n [C.VB_NAME]C.char
	var p [C.VB_PATH]C.char
	C.vb_device_path(c.c(), &n[0], &p[0])
	return C.GoString(&n[0]), C.GoString(&p[0])
}

// Query returns the limits of the device.
func (c Context) Query() (DeviceAttr, error) {
	var a C.struct_vb_device_attr
	if err := check(C.vb_query_device(c.c(), &a), "query device %s", c.Name()); err != nil {
		return DeviceAttr{}, err
	}
	return DeviceAttr{
		FirmwareVersion: C.GoString(&a.fw[0]), NodeGUID: uint64(a.node_guid),
		VendorID: uint32(a.vendor_id), VendorPartID: uint32(a.vendor_part_id), HWVer: uint32(a.hw_ver),
		MaxMRSize: uint64(a.max_mr_size), PageSizes: uint64(a.page_sizes),
		MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge), MaxSGERead: int(a.max_sge_rd),
		MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe), MaxMR: int(a.max_mr), MaxPD: int(a.max_pd),
		MaxQPRdAtom: int(a.max_qp_rd_atom), MaxQPInitRdAtom: int(a.max_qp_init_rd_atom),
		MaxSRQ: int(a.max_srq), MaxSRQWR: int(a.max_srq_wr), MaxAH: int(a.max_ah), MaxMW: int(a.max_mw),
		AtomicCap: AtomicCap(a.atomic_cap), Ports: int(a.ports),
	}, nil
}

// Port returns the state of a port. Ports are numbered from 1.
func (c Context) Port(n int) (PortAttr, error) {
	if n < 1 || n > 255 {
		return PortAttr{}, fmt.Errorf("query port %d of %s: %w", n, c.Name(), syscall.EINVAL)
	}
	var a C.struct_vb_port_attr
	if err := check(C.vb_query_port(c.c(), C.int(n), &a), "query port %d of %s", n, c.Name()); err != nil {
		return PortAttr{}, err
	}
	return PortAttr{
		State: PortState(a.state), PhysState: PhysState(a.phys_state), LinkLayer: LinkLayer(a.link_layer),
		MTU: int(a.mtu), MaxMTU: int(a.max_mtu), LID: uint16(a.lid), SMLID: uint16(a.sm_lid),
		GIDs: int(a.gids), MaxMsg: uint32(a.max_msg), Speed: speed(uint8(a.speed), uint8(a.width)), GRHRequired: a.grh_required != 0,
	}, nil
}

// laneSpeeds are the speeds in Gbit/s by the codes of active_speed, which are bits; 4 and 8 both
// mean 10.
var laneSpeeds = map[uint8]float64{1: 2.5, 2: 5, 4: 10, 8: 10, 16: 14, 32: 25, 64: 50, 128: 100}

// lanes are the numbers of lanes by the codes of active_width.
var lanes = map[uint8]float64{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}

// speed returns the speed of all lanes together. A port faster than NDR reports NDR in this field.
func speed(code, width uint8) float64 { return laneSpeeds[code] * lanes[width] }

// GIDs returns the addresses of a port, without the empty entries of its table.
func (c Context) GIDs(port int) ([]GIDEntry, error) {
	all, err := c.gidTable(port)
	if err == nil || !unsupported(err) {
		return all, err
	}
	return c.gidsOneByOne(port)
}

// gidTable queries the kernel for all entries at once, which libraries from version 31 support.
func (c Context) gidTable(port int) ([]GIDEntry, error) {
	attr, err := c.Query()
	if err != nil {
		return nil, err
	}
	length := 0 // of all ports, because the call covers them all
	for n := 1; n <= attr.Ports; n++ {
		p, err := c.Port(n)
		if err != nil {
			return nil, err
		}
		length += p.GIDs
	}
	if length == 0 {
		return nil, nil
	}
	all, n := make([]C.struct_vb_gid, length), C.int(0)
	if err := check(C.vb_gid_table(c.c(), &all[0], C.int(length), &n), "read the GIDs of port %d of %s", port, c.Name()); err != nil {
		return nil, err
	}
	var entries []GIDEntry
	for i := range all[:n] {
		g := &all[i]
		if int(g.port) != port {
			continue
		}
		e := GIDEntry{Index: int(g.index), Type: GIDType(g._type), NetDev: C.GoString(&g.netdev[0])}
		for j := range e.GID {
			e.GID[j] = byte(g.gid[j])
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// gidsOneByOne is for older libraries: types and interfaces are only in sysfs.
func (c Context) gidsOneByOne(port int) ([]GIDEntry, error) {
	attr, err := c.Port(port)
	if err != nil {
		return nil, err
	}
	name, path := c.path()
	attrs := filepath.Join(path, "ports", strconv.Itoa(port), "gid_attrs")
	var entries []GIDEntry
	for i := range attr.GIDs {
		var gid [16]C.uint8_t
		if err := check(C.vb_query_gid(c.c(), C.int(port), C.int(i), &gid[0]), "read GID %d of port %d of %s", i, port, name); err != nil {
			return nil, err
		}
		if gid == [16]C.uint8_t{} {
			continue
		}
		e := GIDEntry{Index: i, Type: gidType(line(attrs, "types", i), attr.LinkLayer), NetDev: line(attrs, "ndevs", i)}
		for j := range e.GID {
			e.GID[j] = byte(gid[j])
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// line returns the contents of an entry's file, or "" if it cannot be read.
func line(attrs, kind string, index int) string {
	b, err := os.ReadFile(filepath.Join(attrs, kind, strconv.Itoa(index)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// gidType parses sysfs's word, which is the same for IB and RoCE v1.
func gidType(word string, link LinkLayer) GIDType {
	switch {
	case word == "RoCE v2":
		return GIDRoCEv2
	case link == LinkEthernet:
		return GIDRoCEv1
	}
	return GIDIB
}
