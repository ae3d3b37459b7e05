// SPDX-License-Identifier: MIT

package conn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// TestFramesThatBreakTheProtocol sends invalid frames from a plain socket. The connection ends with
// ErrProtocol or ErrCRC, and the log says why.
func TestFramesThatBreakTheProtocol(t *testing.T) {
	badCheck := encode(frame.Header{Kind: frame.KindGoodbye}, nil, nil)
	badCheck[60] ^= 1
	version := encode(frame.Header{Kind: frame.KindGoodbye}, nil, nil)
	version[4] = 9
	offer := encode(frame.Header{Kind: frame.KindOffer, Ticket: 1, Length: 1 << 20}, nil, nil)
	for name, b := range map[string][]byte{
		"random bytes":               bytes.Repeat([]byte("no frame"), 20),
		"a wrong check sum":          badCheck,
		"another version":            version,
		"an unknown kind":            encode(frame.Header{Kind: 200}, nil, nil),
		"unknown flags":              encode(frame.Header{Kind: frame.KindGoodbye, Flags: 1 << 9}, nil, nil),
		"too many segments":          encode(frame.Header{Kind: frame.KindWrite, Count: frame.MaxSegments + 1}, nil, nil),
		"too long a payload":         encode(frame.Header{Kind: frame.KindWrite, Length: frame.MaxMsg + 1}, nil, nil),
		"too long a message":         encode(frame.Header{Kind: frame.KindSend, Length: frame.MaxEager + 1}, nil, nil),
		"a read of no segment":       encode(frame.Header{Kind: frame.KindRead}, nil, nil),
		"segments that do not add":   encode(frame.Header{Kind: frame.KindWrite, Count: 1, Length: 5}, []fabric.RSeg{{Len: 4}}, make([]byte, 5)),
		"segments that overflow":     encode(frame.Header{Kind: frame.KindWrite, Count: 2, Length: 4}, []fabric.RSeg{{Len: 8}, {Len: 1<<64 - 4}}, nil),
		"an ack for nothing":         encode(frame.Header{Kind: frame.KindAck, Count: 1}, nil, make([]byte, 8)),
		"a reply to nothing":         encode(frame.Header{Kind: frame.KindReply, Ticket: 4, Length: 8}, nil, make([]byte, 8)),
		"a pull of nothing":          encode(frame.Header{Kind: frame.KindPull, Ticket: 4, Length: 8}, nil, nil),
		"a body that was not pulled": encode(frame.Header{Kind: frame.KindBody, Length: 8}, nil, make([]byte, 8)),
		"credit that was not used":   encode(frame.Header{Kind: frame.KindCredit, Data: 1}, nil, nil),
		"an offer behind an offer":   append(bytes.Clone(offer), offer...),
		"a message behind an offer":  append(bytes.Clone(offer), encode(frame.Header{Kind: frame.KindSend}, nil, nil)...),
		"an extension":               encode(frame.Header{Kind: frame.KindExtension, Length: 1}, nil, []byte{1}),
		"messages beyond credit":     bytes.Repeat(encode(frame.Header{Kind: frame.KindSend, Length: frame.MaxEager}, nil, make([]byte, frame.MaxEager)), 17),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			c := r.dial(1)[0]
			if _, err := c.Write(b); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Log("write:", err) // the rig may have closed in the middle of it
			}
			e := r.event(fabric.EventShutdown)
			if !errors.Is(e.Err, fabric.ErrProtocol) && !errors.Is(e.Err, fabric.ErrCRC) {
				t.Fatalf("connection ended by %v", e.Err)
			}
			r.log.WaitFor(t, "connection ended")
			r.log.WaitFor(t, c.LocalAddr().String())
			if _, err := r.ep.Submit([]fabric.Op{{Kind: fabric.OpSend}}); !errors.Is(err, fabric.ErrNotConn) {
				t.Errorf("submit afterwards: %v", err)
			}
		})
	}
}

func TestMessagesBelongOnTheFirstLink(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(2)[1]
	_, err := c.Write(encode(frame.Header{Kind: frame.KindSend}, nil, nil))
	r.must(err)
	if e := r.event(fabric.EventShutdown); !errors.Is(e.Err, fabric.ErrProtocol) {
		t.Fatalf("connection ended by %v", e.Err)
	}
}

// TestReadsBeyondCredit sends more reads than allowed without receiving the replies.
func TestReadsBeyondCredit(t *testing.T) {
	r := newRig(t, nil)
	_, key := r.share(1 << 20)
	c := r.dial(1)[0]
	one := encode(frame.Header{Kind: frame.KindRead, Count: 1, Length: 1 << 20, Region: key.ID, Secret: key.Secret}, []fabric.RSeg{{Len: 1 << 20}}, nil)
	_, err := c.Write(bytes.Repeat(one, 3*frame.MaxReads))
	r.must(err)
	if e := r.event(fabric.EventShutdown); !errors.Is(e.Err, fabric.ErrProtocol) {
		t.Fatalf("connection ended by %v", e.Err)
	}
}

// TestRefusalsLeaveTheConnectionAlone writes with invalid keys, rights and ranges. A valid write
// after each must succeed.
func TestRefusalsLeaveTheConnectionAlone(t *testing.T) {
	r := newRig(t, nil)
	mem, key := r.share(4096)
	c := r.dial(1)[0]
	wrong := key
	wrong.Secret[15] ^= 1
	for i, bad := range []struct {
		key  fabric.RegionKey
		seg  fabric.RSeg
		want fabric.Errno
	}{
		{wrong, fabric.RSeg{Len: 100}, fabric.ErrNoKey},
		{fabric.RegionKey{ID: 5}, fabric.RSeg{Len: 100}, fabric.ErrNoKey},
		{key, fabric.RSeg{Addr: 4000, Len: 100}, fabric.ErrRange},
		{key, fabric.RSeg{Addr: 1<<64 - 50, Len: 100}, fabric.ErrRange},
	} {
		h := frame.Header{Kind: frame.KindWrite, Ticket: 1, Count: 1, Length: 100, Region: bad.key.ID, Secret: bad.key.Secret}
		good := frame.Header{Kind: frame.KindWrite, Ticket: 2, Count: 1, Length: 1, Region: key.ID, Secret: key.Secret}
		b := encode(h, []fabric.RSeg{bad.seg}, bytes.Repeat([]byte{0xff}, 100))
		b = append(b, encode(good, []fabric.RSeg{{Addr: 9, Len: 1}}, []byte{byte(i + 1)})...)
		_, err := c.Write(b)
		r.must(err)
		var acks []byte
		for len(acks) < 16 {
			h, body := readFrame(t, c)
			if h.Kind != frame.KindAck {
				t.Fatalf("frame %v", h.Kind)
			}
			acks = append(acks, body...)
		}
		if e := fabric.Errno(binary.BigEndian.Uint32(acks[4:])); e != bad.want {
			t.Errorf("claim %d: %v, want %v", i, e, bad.want)
		}
		if e := binary.BigEndian.Uint32(acks[12:]); e != 0 || mem[9] != byte(i+1) {
			t.Errorf("good write after claim %d: %v, byte %d", i, fabric.Errno(e), mem[9])
		}
		if bytes.IndexByte(mem, 0xff) >= 0 {
			t.Fatalf("claim %d touched the region", i)
		}
	}
}

// TestANoticeNeedsItsRegionsKey checks that remote data whose payload used another path is
// delivered only with the key of the payload's region.
func TestANoticeNeedsItsRegionsKey(t *testing.T) {
	r := newRig(t, nil)
	_, key := r.share(4096)
	c := r.dial(1)[0]
	wrong := key
	wrong.Secret[15] ^= 1
	for i, k := range []fabric.RegionKey{{}, wrong, {ID: key.ID + 1, Secret: key.Secret}, key} {
		want := fabric.ErrNoKey
		if k == key {
			want = 0
		}
		_, err := c.Write(encode(frame.Header{Kind: frame.KindWrite, Ticket: 1, Flags: frame.FlagNotice | frame.FlagRemoteData, Data: uint64(40 + i), Region: k.ID, Secret: k.Secret}, nil, nil))
		r.must(err)
		h, body := readFrame(t, c)
		if h.Kind != frame.KindAck || fabric.Errno(binary.BigEndian.Uint32(body[4:])) != want {
			t.Errorf("notice %d: answered with %v, %x; want %v", i, h.Kind, body, want)
		}
	}
	var done [4]fabric.Completion
	if n, err := r.cq.Read(done[:]); n != 1 || done[0].Data != 43 {
		t.Errorf("%d completions, the first with %d (%v); want the one with the key", n, done[0].Data, err)
	}
}

// TestAnswersThatComeTooEarly acks a write whose bytes the peer does not receive. The ack must not
// complete the write.
func TestAnswersThatComeTooEarly(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(1)[0]
	src, err := sys.Alloc(64 << 20)
	r.must(err)
	t.Cleanup(func() { r.must(sys.Free(src)) })
	key := r.imported(fabric.RegionKey{ID: 3}, 64<<20)
	_, err = r.ep.Submit([]fabric.Op{{Kind: fabric.OpWrite, Seg: fabric.Seg{Addr: sys.AddrOf(src), Len: 64 << 20}, RSeg: fabric.RSeg{Len: 64 << 20, Key: key}}})
	r.must(err)
	b := make([]byte, frame.HeaderLen)
	_, err = c.Read(b)
	r.must(err)
	var h frame.Header
	r.must(frame.ParseHeader(&h, b))
	var ack [8]byte
	frame.Ack{Ticket: h.Ticket, Errno: 0}.Put(ack[:])
	_, err = c.Write(encode(frame.Header{Kind: frame.KindAck, Count: 1}, nil, ack[:]))
	r.must(err)
	time.Sleep(20 * time.Millisecond)
	var done [1]fabric.Completion
	if n, err := r.cq.Read(done[:]); n != 0 || !errors.Is(err, fabric.ErrAgain) {
		t.Fatalf("an op whose bytes are not sent ended: %+v %v", done[:n], err)
	}
	r.must(c.Close())
	if _, err := r.cq.Wait(r.ctx, done[:]); !errors.Is(err, fabric.ErrAvail) {
		t.Fatalf("wait: %v", err)
	}
	var e fabric.ErrEntry
	r.must(r.cq.ReadErr(&e))
	if e.Err != fabric.ErrConnReset {
		t.Errorf("error entry %v", &e)
	}
}

// TestRegionClosesUnderAPeerThatStops leaves a write half sent, and the reply to a read unreceived.
// Close waits its grace period, disconnects the peer, and returns.
func TestRegionClosesUnderAPeerThatStops(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the grace time of a region")
	}
	const n = 64 << 20
	for name, make := range map[string]func(fabric.RegionKey) []byte{
		"in mid-write": func(k fabric.RegionKey) []byte {
			h := frame.Header{Kind: frame.KindWrite, Count: 1, Length: n, Region: k.ID, Secret: k.Secret}
			return encode(h, []fabric.RSeg{{Len: n}}, []byte("some"))
		},
		"in mid-read": func(k fabric.RegionKey) []byte {
			h := frame.Header{Kind: frame.KindRead, Count: 1, Length: n, Region: k.ID, Secret: k.Secret}
			return encode(h, []fabric.RSeg{{Len: n}}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			mem, err := sys.Alloc(n)
			r.must(err)
			t.Cleanup(func() { r.must(sys.Free(mem)) })
			key := fabric.RegionKey{ID: 3, Secret: [16]byte{9}}
			mr, err := r.dom.Reg(fabric.Buffer{Addr: sys.AddrOf(mem), Len: n}, fabric.AccessRemoteRead|fabric.AccessRemoteWrite, key)
			r.must(err)
			c := r.dial(1)[0]
			_, err = c.Write(make(key))
			r.must(err)
			time.Sleep(50 * time.Millisecond)
			r.must(mr.Close())
			if e := r.event(fabric.EventShutdown); !errors.Is(e.Err, fabric.ErrTimeout) {
				t.Errorf("connection ended by %v", e.Err)
			}
		})
	}
}
