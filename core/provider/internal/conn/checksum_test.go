// SPDX-License-Identifier: MIT

package conn

import (
	"errors"
	"net"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// TestAlteredPayloadIsNotAccepted sends frames whose payload does not match their checksum.
func TestAlteredPayloadIsNotAccepted(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(1)[0]
	mem, key := r.share(64)
	payload := make([]byte, 16)
	write := frame.Header{Kind: frame.KindWrite, Flags: frame.FlagChecksum | frame.FlagRemoteData, Ticket: 5, Count: 1, Length: 16, Region: key.ID, Secret: key.Secret, Data: 99}
	segs := []fabric.RSeg{{Addr: 8, Len: 16}}
	bad := write
	bad.Checksum = 12345
	send(t, c, encode(bad, segs, payload))
	if got := ackOf(t, c); got != (frame.Ack{Ticket: 5, Errno: fabric.ErrCRC}) {
		t.Fatalf("an altered write is answered with %+v", got)
	}
	var done [1]fabric.Completion
	if n, err := r.cq.Read(done[:]); n != 0 || !errors.Is(err, fabric.ErrAgain) {
		t.Fatalf("an altered write was reported: %+v", done)
	}
	copy(payload, "sixteen bytes of")
	send(t, c, encode(write, segs, payload))
	if got := ackOf(t, c); got != (frame.Ack{Ticket: 5, Errno: 0}) || string(mem[8:24]) != string(payload) {
		t.Fatalf("a sound write is answered with %+v", got)
	}
	if n, err := r.cq.Read(done[:]); n != 1 || done[0].Data != 99 {
		t.Fatalf("%d entries, %v: %+v", n, err, done)
	}
}

// TestWhatSteersIsAlwaysChecked alters tables and entries of frames without FlagChecksum.
func TestWhatSteersIsAlwaysChecked(t *testing.T) {
	for name, h := range map[string]frame.Header{
		"the table of a write":  {Kind: frame.KindWrite, Count: 1, Length: 16},
		"the table of a read":   {Kind: frame.KindRead, Count: 1, Length: 16},
		"the entries of an ack": {Kind: frame.KindAck, Count: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			c := r.dial(1)[0]
			mem, key := r.share(64)
			h.Region, h.Secret = key.ID, key.Secret
			var segs []fabric.RSeg
			payload := []byte("sixteen bytes of")
			switch h.Kind {
			case frame.KindAck:
				payload = payload[:frame.AckLen]
			case frame.KindRead:
				segs, payload = []fabric.RSeg{{Addr: 8, Len: 16}}, nil
			default:
				segs = []fabric.RSeg{{Addr: 8, Len: 16}}
			}
			b := encode(h, segs, payload)
			b[frame.HeaderLen+7] ^= 16 // an offset, or a ticket
			send(t, c, b)
			if e := r.event(fabric.EventShutdown).Err; !errors.Is(e, fabric.ErrCRC) {
				t.Errorf("the connection ended with %v", e)
			}
			for _, b := range mem {
				if b != 0 {
					t.Fatal("bytes were moved by a table that nobody sent")
				}
			}
		})
	}
}

// TestAlteredRepliesFailTheRead plays a peer that answers reads.
func TestAlteredRepliesFailTheRead(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(1)[0]
	back, err := sys.Alloc(64)
	r.must(err)
	t.Cleanup(func() { r.must(sys.Free(back)) })
	key := r.imported(fabric.RegionKey{ID: 3}, 64)
	for _, sum := range []uint32{frame.Checksum(0, make([]byte, 64)), 4711} {
		_, err = r.ep.Submit([]fabric.Op{{Kind: fabric.OpRead, Seg: fabric.Seg{Addr: sys.AddrOf(back), Len: 64}, RSeg: fabric.RSeg{Len: 64, Key: key}}})
		r.must(err)
		h, _ := readFrameTable(t, c)
		send(t, c, encode(frame.Header{Kind: frame.KindReply, Ticket: h.Ticket, Flags: frame.FlagChecksum, Length: 64, Checksum: sum}, nil, make([]byte, 64)))
		err := r.outcome()
		if want := sum != 4711; (err == nil) != want || !want && !errors.Is(err, fabric.ErrCRC) {
			t.Errorf("sum %#x: %v", sum, err)
		}
	}
}

// readFrameTable reads a header and the table of a read with one segment.
func readFrameTable(t *testing.T, c net.Conn) (h frame.Header, table []byte) {
	t.Helper()
	b := make([]byte, frame.HeaderLen+frame.SegmentLen)
	for n := 0; n < len(b); {
		k, err := c.Read(b[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if err := frame.ParseHeader(&h, b); err != nil {
		t.Fatal(err)
	}
	return h, b[frame.HeaderLen:]
}

func send(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// ackOf reads an ack of one op.
func ackOf(t *testing.T, c net.Conn) frame.Ack {
	t.Helper()
	h, body := readFrame(t, c)
	if h.Kind != frame.KindAck || h.Count != 1 || frame.Checksum(0, body) != h.TableChecksum {
		t.Fatalf("%+v in place of an ack", h)
	}
	return frame.ParseAck(body)
}

// outcome waits for the end of an op of the rig's endpoint and returns its error.
func (r *rig) outcome() error {
	r.Helper()
	var done [1]fabric.Completion
	n, err := r.cq.Wait(r.ctx, done[:])
	if n == 1 {
		return nil
	}
	var e fabric.ErrEntry
	if !errors.Is(err, fabric.ErrAvail) || r.cq.ReadErr(&e) != nil {
		r.Fatalf("wait: %v", err)
	}
	return &e
}
