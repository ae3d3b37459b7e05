// SPDX-License-Identifier: MIT

package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
)

// fuzzCode is a comparing atomic op on 64-bit numbers.
const fuzzCode = uint32(fabric.OpCompareAtomic)<<16 | uint32(fabric.AtomicCSwap)<<8 | uint32(fabric.Uint64)

func FuzzFrameHeader(f *testing.F) {
	for k := kindSend; k < kindEnd; k++ {
		f.Add(frame(header{kind: k, ticket: 9, count: 1, length: 64, region: 3, data: 1 << 40}, nil, nil))
	}
	f.Add(frame(header{kind: kindAtomic, count: fuzzCode, length: 64, region: 77, data: 8}, nil, nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h header
		var err error
		decodetest.Bounded(t, len(b), func() { err = parseHeader(&h, b) })
		if err != nil {
			return
		}
		code, entries := atomicCode(h.count), h.count
		if h.kind == kindAtomic {
			entries = 0
		}
		if entries > maxSegments || h.length > maxMsg || h.kind == 0 || h.kind >= kindEnd {
			t.Fatalf("taken: %+v", h)
		}
		if h.kind == kindAtomic && (!fabric.AtomicValid(code.kind(), code.op(), code.typ()) || code.payload(h.length) > stagingLen) {
			t.Fatalf("taken: %+v", h)
		}
		if again := frame(h, nil, nil); !bytes.Equal(again[:56], b[:56]) {
			t.Fatalf("%x becomes %x", b[:headerLen], again)
		}
	})
}

func FuzzSegmentTable(f *testing.F) {
	f.Add(frame(header{kind: kindGoodbye}, []fabric.RSeg{{Addr: 1, Len: 2}, {Addr: 3, Len: 4}}, nil)[headerLen:], uint64(6))
	f.Add(bytes.Repeat([]byte{0xff}, 32), uint64(1<<30))
	f.Fuzz(func(t *testing.T, b []byte, limit uint64) {
		var total, sum uint64
		var segs []fabric.RSeg
		var err error
		decodetest.Bounded(t, len(b), func() { segs, err = appendSegments(nil, b, &total, limit) })
		if total > limit {
			t.Fatalf("%d bytes within %d", total, limit)
		}
		for _, s := range segs {
			sum += s.Len
		}
		if sum != total {
			t.Fatalf("segments of %d bytes counted as %d", sum, total)
		}
		if err == nil && len(segs) != len(b)/segmentLen {
			t.Fatalf("%d segments in %d bytes", len(segs), len(b))
		}
	})
}

func FuzzHandshake(f *testing.F) {
	h, a := goodHello(), answer{version: protocolVersion, verdict: verdictRejected, tx: 4, private: []byte("no")}
	f.Add(h.append(nil))
	f.Add(a.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		var a answer
		var err error
		decodetest.Bounded(t, len(b), func() { h, err = readHello(bytes.NewReader(b)) })
		if err == nil {
			if h.links == 0 || h.links > MaxLinks || h.link >= h.links || len(h.private) > maxPrivate || h.tx == 0 || h.tx > maxTx {
				t.Fatalf("taken: %+v", h)
			}
			if again := h.append(nil); !bytes.Equal(again, b[:len(again)]) {
				t.Fatalf("%x becomes %x", b, again)
			}
		}
		decodetest.Bounded(t, len(b), func() { a, err = readAnswer(bytes.NewReader(b)) })
		if err == nil {
			if again := a.append(nil); !bytes.Equal(again, b[:len(again)]) || len(a.private) > maxPrivate {
				t.Fatalf("%x becomes %x", b, again)
			}
		}
	})
}

// FuzzListener sends random bytes to a live listener, as a hello and behind a good one, and asks it for its health.
func FuzzListener(f *testing.F) {
	h := goodHello()
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add(h.append(nil), false)
	f.Add(frame(header{kind: kindSend, length: 3}, nil, []byte("abc")), true)
	f.Add(frame(header{kind: kindWrite, count: 1, length: 3, region: 77}, []fabric.RSeg{{Len: 3}}, []byte("abc")), true)
	f.Add(frame(header{kind: kindRead, count: 1, length: 3, region: 77, secret: [16]byte{1, 2, 3}}, []fabric.RSeg{{Len: 3}}, nil), true)
	f.Add(frame(header{kind: kindAtomic, count: fuzzCode, length: 8, region: 77}, nil, make([]byte, 16)), true)
	f.Add(frame(header{kind: kindAtomic, count: fuzzCode, length: 8, region: 77, secret: [16]byte{1, 2, 3}}, nil, make([]byte, 16)), true)
	f.Add(frame(header{kind: kindSend, flags: flagPlaced, length: 3}, nil, []byte("abc")), true)
	r := newRig(f, nil)
	r.ctx = context.Background() // each execution is bounded by its socket's deadline
	mem, _ := r.share(4096)
	good := append([]byte(nil), mem...)
	f.Fuzz(func(t *testing.T, b []byte, accepted bool) {
		conn, err := net.Dial("tcp", string(r.ln.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(testDeadline)); err != nil {
			t.Fatal(err)
		}
		decodetest.Bounded(t, len(b), func() {
			if accepted {
				side := *r
				side.TB = t
				fuzzFrames(t, &side, conn, seal(b))
			} else {
				_, _ = conn.Write(b) // the listener may close in the middle of it
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
			}
		})
		if !bytes.Equal(mem, good) && !bytes.Contains(b, []byte{1, 2, 3}) {
			t.Fatal("the region changed")
		}
	})
}

// seal makes b begin with a header that passes for one: the numbers in it stay.
func seal(b []byte) []byte {
	if len(b) < headerLen {
		return b
	}
	b = bytes.Clone(b)
	binary.BigEndian.PutUint32(b, frameMagic)
	b[4] = protocolVersion
	binary.BigEndian.PutUint32(b[checkAt:], crc32.Checksum(b[:checkAt], castagnoli))
	return b
}

// fuzzFrames connects properly and then sends b. The endpoint ends in bounded time.
func fuzzFrames(t *testing.T, r *rig, conn net.Conn, b []byte) {
	h := goodHello()
	if _, err := conn.Write(h.append(nil)); err != nil {
		t.Fatal(err)
	}
	ep := r.endpoint()
	var req fabric.ConnReq
	for req == nil || string(req.Peer()) != conn.LocalAddr().String() { // others may wait that have gone
		var err error
		if req, err = r.ln.Accept(r.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := ep.Accept(r.ctx, req, nil); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write(b)
	_ = conn.(*net.TCPConn).CloseWrite()
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Log("read:", err) // a reset is a fair end
	}
	for kind := fabric.EventConnected; kind <= fabric.EventShutdown; kind++ {
		if e, err := r.eq.Wait(r.ctx); err != nil || e.Kind != kind {
			t.Fatalf("event %+v, %v", e, err)
		}
	}
	if err := ep.Close(); err != nil {
		t.Fatal(err)
	}
}
