// SPDX-License-Identifier: MIT

package bootstrap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"mori/core/decode/decodetest"
)

var testSecret = [secretSize]byte{1, 2, 3}

// sum makes the checksum fit again.
func sum(id []byte) []byte {
	binary.LittleEndian.PutUint32(id[idSum:], crc32.Checksum(id[:idSum], castagnoli))
	return id
}

func TestUniqueIDSurvives(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:10000", "192.0.2.7:60000", "[2001:db8::5]:12345", "[::1]:1"} {
		want := netip.MustParseAddrPort(addr)
		id := newID(testSecret, want)
		got, err := ParseUniqueID(id[:])
		if err != nil || got != id || got.addr() != want || got.secret() != testSecret {
			t.Errorf("%s: %v, %v", addr, got, err)
		}
		if v := binary.LittleEndian.Uint32(id[:]); v != 1 || len(id) != 128 {
			t.Errorf("the id has %d bytes and begins with %d", len(id), v)
		}
		if s := id.String(); !strings.Contains(s, addr) || strings.Contains(s, string(testSecret[:])) {
			t.Errorf("the id prints as %q", s)
		}
	}
}

func TestBadIDsAreRefused(t *testing.T) {
	good := newID(testSecret, netip.MustParseAddrPort("192.0.2.7:60000"))
	change := func(at int, v ...byte) []byte {
		b := bytes.Clone(good[:])
		copy(b[at:], v)
		return sum(b)
	}
	for name, c := range map[string]struct {
		b    []byte
		says string
	}{
		"nothing":            {nil, "0 bytes, want 128"},
		"short":              {good[:127], "127 bytes, want 128"},
		"long":               {append(good[:], 0), "129 bytes, want 128"},
		"version":            {change(0, 2), "version 2, want 1"},
		"changed on its way": {append(bytes.Clone(good[:20]), append([]byte{good[20] ^ 1}, good[21:]...)...), "checksum"},
		"zeros":              {make([]byte, 128), "version 0"},
		"magic":              {change(idSecret, make([]byte, secretSize)...), "magic is zero"},
		"family":             {change(idFamily, 77), "family 77"},
		"port":               {change(idPort, 0, 0), "port 0"},
		"after the address":  {change(idUnused+3, 1), "must be zero"},
		"behind IPv4":        {change(idAddr+5, 1), "must be zero"},
		"no host":            {change(idAddr, 0, 0, 0, 0), "not the address of a host"},
		"multicast":          {change(idAddr, 224, 0, 0, 1), "not the address of a host"},
	} {
		if _, err := ParseUniqueID(c.b); !errors.Is(err, ErrBadID) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want ErrBadID that says %q", name, err, c.says)
		}
	}
}

func FuzzUniqueID(f *testing.F) {
	for _, addr := range []string{"127.0.0.1:10000", "[2001:db8::5]:12345"} {
		id := newID(testSecret, netip.MustParseAddrPort(addr))
		f.Add(id[:])
	}
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, sum(append(bytes.Clone(b), make([]byte, IDSize)...)[:IDSize])} {
			var id UniqueID
			var err error
			decodetest.Bounded(t, len(b), func() { id, err = ParseUniqueID(b) })
			if err != nil {
				continue
			}
			if again := newID(id.secret(), id.addr()); again != id {
				t.Errorf("%x reads as %v, which is %x", b, id, again[:])
			}
		}
		decodetest.Bounded(t, len(b), func() {
			_, _ = parseFile(b)
			_, _ = parseFile(append([]byte(fileTitle), b...))
		})
	})
}

func TestNewUniqueIDKeepsItsPort(t *testing.T) {
	id := loopbackID(t)
	if port := id.addr().Port(); port < 10000 || port > 60000 {
		t.Errorf("port %d", port)
	}
	if l, err := net.Listen("tcp", id.addr().String()); err == nil {
		t.Errorf("another program could listen at %v", l.Addr())
		_ = l.Close()
	}
	if fd, err := reservePort(id.addr()); err == nil {
		t.Errorf("the port of %v was reserved twice, as %d", id, fd)
	}
	if c, err := net.DialTimeout("tcp", id.addr().String(), time.Second); err == nil {
		t.Errorf("%v answers", c.RemoteAddr())
		_ = c.Close()
	}
	l, err := listenReserved(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenReserved(t.Context(), id); !errors.Is(err, ErrMismatch) {
		t.Errorf("second rank 0: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	l, err = net.Listen("tcp", id.addr().String())
	if err != nil {
		t.Fatalf("the port is still kept: %v", err)
	}
	_ = l.Close()
}

func TestNewUniqueIDNamesTheInterfaceThatIsNotThere(t *testing.T) {
	t.Setenv("MORI_SOCKET_IFNAME", "nosuch0")
	if _, err := NewUniqueID(); err == nil || !strings.Contains(err.Error(), "nosuch0") {
		t.Errorf("got %v", err)
	}
}
