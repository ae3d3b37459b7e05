// SPDX-License-Identifier: MIT

package reliability

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"mori/core"
)

// A peekArgs names memory of another process.
type peekArgs struct {
	PID  int
	Addr uint64
}

// peek tries to read memory of another process, in each way that the kernel has. The error is nil
// if one of them works.
func (p *peerSide) peek(raw json.RawMessage) (any, error) {
	a, err := decode[peekArgs](raw)
	if err != nil {
		return nil, err
	}
	var b [64]byte
	local, remote := []unix.Iovec{{Base: &b[0], Len: 64}}, []unix.RemoteIovec{{Base: uintptr(a.Addr), Len: 64}}
	if _, err = unix.ProcessVMReadv(a.PID, local, remote, 0); err == nil {
		return nil, nil
	}
	f, openErr := os.Open(fmt.Sprintf("/proc/%d/mem", a.PID))
	if openErr != nil {
		return nil, errors.Join(err, openErr)
	}
	defer f.Close()
	_, readErr := f.ReadAt(b[:], int64(a.Addr))
	if readErr == nil {
		return nil, nil
	}
	return nil, errors.Join(err, readErr)
}

// limitMemory lets the process map n more bytes. A length that is only claimed costs no resident
// memory, but counts here.
func limitMemory(n uint64) error {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		return err
	}
	n += pages * uint64(os.Getpagesize())
	return unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: n, Max: n})
}

// A throwArgs is what to send to an address, each part over a connection of its own. With TLS the
// connections use the process's certificate, if it has one.
type throwArgs struct {
	Addr   string
	Bodies [][]byte
}

// throw sends the bodies, and waits a little for what the other side does. No connection has to
// work.
func (p *peerSide) throw(raw json.RawMessage) (any, error) {
	a, err := decode[throwArgs](raw)
	if err != nil {
		return nil, err
	}
	cfg, err := core.TLS(os.Getenv("MORI_TLS_CERT"), os.Getenv("MORI_TLS_KEY"), os.Getenv("MORI_TLS_CA"))
	if err != nil {
		return nil, err
	}
	for _, body := range a.Bodies {
		c, err := net.DialTimeout("tcp", a.Addr, 5*time.Second)
		if err != nil {
			return nil, err
		}
		if cfg != nil {
			c = tls.Client(c, cfg)
		}
		_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = c.Write(body)
		_, _ = c.Read(make([]byte, 1))
		defer c.Close() // after all have been sent: silent ones pile up
	}
	return nil, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hostileMessages are control messages that claim 3 GiB: a hello in the right form, and arrays of
// each type with the claim at each place.
func hostileMessages(to string) (all [][]byte) {
	claim := []byte{0xc6, 0xc0, 0, 0, 0}
	add := func(kind byte, body []byte) {
		head := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)))
		sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
		all = append(all, append(binary.BigEndian.AppendUint32(head, sum), body...))
	}
	hello := append([]byte{0x9a, 4, 0xa1, 'x', 0xa0, 5, 0xa0 | byte(len(to))}, to...)
	add(1, append(append(hello, 0), claim...))
	for kind := byte(1); kind <= 12; kind++ {
		for at := range 3 {
			add(kind, append(append([]byte{0x9a}, bytes.Repeat([]byte{0xa0}, at)...), claim...))
		}
	}
	return append(all, []byte("GET / HTTP/1.1\r\n\r\n"), nil)
}

// A wiretap is an attacker on the wire: it looks for what it wants, and alters what it finds.
type wiretap struct {
	data    [][]byte // parts of blocks
	key     []byte   // of a region
	sawData bool
	sawKey  bool
	flips   int               // packets still to be altered
	uids    map[uint64]uint64 // to be replaced in frames of writes
	offsets map[uint64]uint64 // to be put into frames of writes, by uid
}

// see is for lab.Watch.
func (w *wiretap) see(b []byte) (altered bool) {
	w.sawKey = w.sawKey || bytes.Contains(b, w.key)
	at := -1
	for _, part := range w.data {
		if at = bytes.Index(b, part); at >= 0 {
			w.sawData = true
			break
		}
	}
	if w.flips > 0 && (at >= 0 || !w.sawData && len(b) > 1000) {
		w.flips--
		b[max(at, 0)+len(w.data[0])/2] ^= 1
		altered = true
	}
	return w.forge(b) || altered
}

// forge alters the frame of a write of one block: its uid, or where it goes. It makes the
// checksums fit.
func (w *wiretap) forge(b []byte) bool {
	const kindAt, flagsAt, dataAt, tableAt, checkAt, head, table, kindWrite = 5, 7, 48, 56, 68, 72, 16, 5
	for i := 0; ; i++ {
		k := bytes.Index(b[i:], []byte("mori"))
		if i += k; k < 0 || len(b)-i < head+table {
			return false
		}
		h, to := b[i:i+head], b[i+head:i+head+table]
		if h[kindAt] != kindWrite || h[flagsAt]&1 == 0 {
			continue
		}
		data := binary.BigEndian.Uint64(h[dataAt:])
		uid, newUID := w.uids[data]
		offset, newOffset := w.offsets[data]
		if newUID {
			binary.BigEndian.PutUint64(h[dataAt:], uid)
		}
		if newOffset {
			binary.BigEndian.PutUint64(to, offset)
			binary.BigEndian.PutUint32(h[tableAt:], crc32.Checksum(to, castagnoli))
		}
		if newUID || newOffset {
			binary.BigEndian.PutUint32(h[checkAt:], crc32.Checksum(h[:checkAt], castagnoli))
			return true
		}
	}
}

// parts returns 32 bytes of each of the blocks.
func parts(seed uint64, blocks []int) (all [][]byte) {
	b := make([]byte, block)
	for _, i := range blocks {
		fillBlock(b, seed, uint64(i))
		all = append(all, slices.Clone(b[64:96]))
	}
	return all
}
