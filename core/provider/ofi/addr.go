// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// An address is host:port for sockets, or libfabric's own text if the format has one. Otherwise it
// is "fi:" with the format's number and the bytes in hex.
const rawAddr = "fi:"

// addrText returns the text of an address in libfabric's form.
func addrText(format uint32, b []byte) fabric.Addr {
	switch {
	case format == lf.FormatIn && len(b) >= 8:
		ip := netip.AddrFrom4([4]byte(b[4:8]))
		return fabric.Addr(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[2:])).String())
	case format == lf.FormatIn6 && len(b) >= 28:
		ip := netip.AddrFrom16([16]byte(b[8:24]))
		if scope := binary.NativeEndian.Uint32(b[24:]); scope != 0 {
			ip = ip.WithZone(strconv.Itoa(int(scope)))
		}
		return fabric.Addr(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[2:])).String())
	case format == lf.FormatStr:
		text, _, _ := strings.Cut(string(b), "\x00")
		return fabric.Addr(text)
	}
	return fabric.Addr(fmt.Sprintf("%s%d:%x", rawAddr, format, b))
}

// addrBytes is the inverse of addrText. ErrInvalid if a is not an address in this format.
func addrBytes(format uint32, a fabric.Addr) ([]byte, error) {
	bad := func(why any) ([]byte, error) {
		return nil, fmt.Errorf("address %q: %v: %w", a, why, fabric.ErrInvalid)
	}
	switch format {
	case lf.FormatIn, lf.FormatIn6:
		ap, err := netip.ParseAddrPort(string(a))
		switch {
		case err != nil:
			return bad(err)
		case ap.Addr().Is4() != (format == lf.FormatIn):
			return bad("another family")
		case format == lf.FormatIn:
			return sockaddrIn(ap), nil
		}
		scope, err := strconv.ParseUint("0"+ap.Addr().Zone(), 10, 32)
		if err != nil {
			return bad(err)
		}
		return sockaddrIn6(ap, uint32(scope)), nil
	case lf.FormatStr:
		if !strings.Contains(string(a), "://") || strings.ContainsRune(string(a), 0) {
			return bad("want prefix://name")
		}
		return append([]byte(a), 0), nil
	}
	text, ok := strings.CutPrefix(string(a), fmt.Sprintf("%s%d:", rawAddr, format))
	b, err := hex.DecodeString(text)
	if !ok || err != nil || len(b) == 0 {
		return bad(fmt.Sprintf("want %s%d: and hex", rawAddr, format))
	}
	return b, nil
}

func sockaddrIn(ap netip.AddrPort) []byte {
	b := binary.NativeEndian.AppendUint16(nil, syscall.AF_INET)
	b = binary.BigEndian.AppendUint16(b, ap.Port())
	ip := ap.Addr().As4()
	return append(append(b, ip[:]...), make([]byte, 8)...)
}

func sockaddrIn6(ap netip.AddrPort, scope uint32) []byte {
	b := binary.NativeEndian.AppendUint16(nil, syscall.AF_INET6)
	b = binary.BigEndian.AppendUint16(b, ap.Port())
	ip := ap.Addr().As16()
	b = append(append(b, 0, 0, 0, 0), ip[:]...)
	return binary.NativeEndian.AppendUint32(b, scope)
}
