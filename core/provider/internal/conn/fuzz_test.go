// SPDX-License-Identifier: MIT

package conn

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

// fuzzCode is a comparing atomic op on 64-bit numbers.
const fuzzCode = uint32(fabric.OpCompareAtomic)<<16 | uint32(fabric.AtomicCSwap)<<8 | uint32(fabric.Uint64)

// FuzzListener sends random bytes to a live listener, in place of a handshake and after a valid
// one. Then it checks that the listener still works.
func FuzzListener(f *testing.F) {
	h := goodHandshake()
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add(h.Append(nil), false)
	f.Add(encode(frame.Header{Kind: frame.KindSend, Length: 3}, nil, []byte("abc")), true)
	f.Add(encode(frame.Header{Kind: frame.KindWrite, Count: 1, Length: 3, Region: 77}, []fabric.RSeg{{Len: 3}}, []byte("abc")), true)
	f.Add(encode(frame.Header{Kind: frame.KindRead, Count: 1, Length: 3, Region: 77, Secret: [16]byte{1, 2, 3}}, []fabric.RSeg{{Len: 3}}, nil), true)
	f.Add(encode(frame.Header{Kind: frame.KindAtomic, Count: fuzzCode, Length: 8, Region: 77}, nil, make([]byte, 16)), true)
	f.Add(encode(frame.Header{Kind: frame.KindAtomic, Count: fuzzCode, Length: 8, Region: 77, Secret: [16]byte{1, 2, 3}}, nil, make([]byte, 16)), true)
	f.Add(encode(frame.Header{Kind: frame.KindSend, Flags: frame.FlagPlaced, Length: 3}, nil, []byte("abc")), true)
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

// seal makes b begin with a header that passes the checks of magic, version and checksum. It keeps
// the numbers in it.
func seal(b []byte) []byte {
	if len(b) < frame.HeaderLen {
		return b
	}
	b = bytes.Clone(b)
	binary.BigEndian.PutUint32(b, frame.Magic)
	b[4] = frame.Version
	binary.BigEndian.PutUint32(b[frame.CheckAt:], frame.Checksum(0, b[:frame.CheckAt]))
	return b
}

// fuzzFrames connects properly and then sends b. The endpoint must end in bounded time.
func fuzzFrames(t *testing.T, r *rig, conn net.Conn, b []byte) {
	h := goodHandshake()
	if _, err := conn.Write(h.Append(nil)); err != nil {
		t.Fatal(err)
	}
	ep := r.endpoint()
	var req fabric.ConnReq
	for req == nil || string(req.Peer()) != conn.LocalAddr().String() { // skip requests of earlier connections
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
		t.Log("read:", err) // a reset is a valid end, too
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
