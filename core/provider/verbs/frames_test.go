// SPDX-License-Identifier: MIT

package verbs

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/native/verbs"
)

var someRails = []railDesc{
	{gid: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 7}, link: verbs.LinkEthernet, mtu: 4096, readDepth: 16, psn: 0xabcdef, recvs: 700, index: 5, wire: 9, wireRecvs: 32, wireBytes: 8192,
		qps: []uint32{17, 0xffffff}},
	{lid: 3, link: verbs.LinkInfiniBand, mtu: 256, readDepth: 1, qps: []uint32{1}},
}

var someRefs = []regionRef{
	{base: 0x1000, size: 10, access: fabric.AccessRemoteRead, chunk: 10, keys: [][]uint32{{7}, {8}}},
	{base: 0, size: 9, access: fabric.AccessRemoteWrite, chunk: 4, keys: [][]uint32{{1, 2, 3}}},
	{base: 0x1000, size: 0, chunk: 1, keys: [][]uint32{{7}}},
}

func TestFramesRoundTrip(t *testing.T) {
	got, err := parseRails(encodeRails(someRails))
	if err != nil || !reflect.DeepEqual(got, someRails) {
		t.Errorf("%+v, %v; want %+v", got, err, someRails)
	}
	for _, p := range someRefs {
		if got, err := parseRegionRef(p.encode()); err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%+v, %v; want %+v", got, err, p)
		}
	}
}

// A reason is cut where it is too long, and what a hostile peer puts into one does nothing to a
// terminal.
func TestReasons(t *testing.T) {
	long := strings.Repeat("x", maxReason)
	for said, want := range map[string]string{"no device": "no device", long + "y": long, "a\x1b[2Jb\xff\n": "a?[2Jb\ufffd?"} {
		if got, err := parseReason(encodeReason(errors.New(said))); err != nil || got != want {
			t.Errorf("%q came as %q, %v; want %q", said, got, err, want)
		}
	}
}

// What a frame must not have, by the byte that is changed.
func TestBrokenFrames(t *testing.T) {
	rails := encodeRails(someRails)
	for name, c := range map[string]struct {
		at int
		to byte
	}{"version": {0, 9}, "no rails": {1, 0}, "too many rails": {1, 200}, "no queue pairs": {2 + 28, 0}, "PSN of 32 bits": {2 + 22, 1}, "messages by a number of 32 bits": {2 + 30, 1},
		"messages without receives": {2 + 35, 0}} {
		b := append([]byte(nil), rails...)
		b[c.at] = c.to
		if _, err := parseRails(b); !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range rails {
		if _, err := parseRails(rails[:n]); !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := parseRails(append(rails, 0)); !errors.Is(err, fabric.ErrProtocol) {
		t.Errorf("a byte too many: %v", err)
	}
	for _, p := range []regionRef{{base: ^uint64(0), size: 2, chunk: 2, keys: [][]uint32{{1}}}, {size: 1, keys: [][]uint32{{1}}}, {size: ^uint64(0), chunk: 2, keys: [][]uint32{{1}}}} {
		if _, err := parseRegionRef(func() []byte { b := p.encode(); return b }()); !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func FuzzRails(f *testing.F) {
	f.Add(encodeRails(someRails))
	f.Add(encodeRails(someRails[1:]))
	f.Fuzz(func(t *testing.T, b []byte) {
		var rails []railDesc
		var err error
		decodetest.Bounded(t, len(b), func() { rails, err = parseRails(b) })
		if err != nil {
			return
		}
		if again := encodeRails(rails); string(again) != string(b) {
			t.Errorf("%x was read as %+v, which is %x", b, rails, again)
		}
	})
}

func FuzzPlace(f *testing.F) {
	for _, p := range someRefs {
		f.Add(p.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p regionRef
		var err error
		decodetest.Bounded(t, len(b), func() { p, err = parseRegionRef(b) })
		if err != nil {
			return
		}
		if again := p.encode(); string(again) != string(b) {
			t.Errorf("%x was read as %+v, which is %x", b, p, again)
		}
		if n := pieces(p.size, p.chunk); uint64(len(p.keys[0])) != n || p.size > 0 && (p.size-1)/p.chunk >= n {
			t.Errorf("%d keys for %d bytes in pieces of %d", len(p.keys[0]), p.size, p.chunk)
		}
	})
}

// FuzzNotices reads credits and what sends say, which come back as they were.
func FuzzNotices(f *testing.F) {
	f.Add(make([]byte, noticeLen))
	f.Add([]byte{1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		var c credit
		var x remoteData
		var err error
		decodetest.Bounded(t, len(b), func() {
			c, err = parseCredit(b)
			if len(b) >= noticeLen {
				x = parseRemoteData(b)
			}
		})
		if again := binary.BigEndian.AppendUint16([]byte{c.rail, c.pair}, uint16(c.n)); err == nil && string(again) != string(b) {
			t.Errorf("%x was read as %+v", b, c)
		}
		if len(b) < noticeLen {
			return
		}
		var again []byte
		for _, v := range []uint64{x.data, x.length, x.ticket} {
			again = binary.BigEndian.AppendUint64(again, v)
		}
		if string(again) != string(b[:noticeLen]) {
			t.Errorf("%x was read as %+v", b, x)
		}
	})
}

func TestSettings(t *testing.T) {
	s, err := Settings{}.filled()
	if err != nil || s.Rails != 1 || s.QPs != 1 || s.SendWR == 0 || s.Timeout == 0 || s.Retries != 6 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []Settings{{Rails: -1}, {QPs: 17}, {SendWR: 1 << 20}, {Timeout: 32}, {Retries: 8}} {
		if _, err := bad.filled(); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, c := range []struct {
		device, name string
		port         int
		err          error
	}{{"mlx5_0", "mlx5_0", 0, nil}, {"mlx5_0:2", "mlx5_0", 2, nil}, {"mlx5_0:", "", 0, fabric.ErrInvalid}, {"mlx5_0:x", "", 0, fabric.ErrInvalid}, {"a:0", "", 0, fabric.ErrInvalid}} {
		if name, port, err := splitPort(c.device); name != c.name || port != c.port || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %d, %v", c.device, name, port, err)
		}
	}
}
