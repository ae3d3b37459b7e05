// SPDX-License-Identifier: MIT

package stream

import (
	"errors"
	"net"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// TestAlteredPayloadIsNotAccepted sends frames whose payload is not what its sum says.
func TestAlteredPayloadIsNotAccepted(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(1)[0]
	mem, key := r.share(64)
	payload := make([]byte, 16)
	write := header{kind: kindWrite, flags: flagSum | flagRemoteData, ticket: 5, count: 1, length: 16, region: key.ID, secret: key.Secret, data: 99}
	segs := []fabric.RSeg{{Addr: 8, Len: 16}}
	bad := write
	bad.sum = 12345
	send(t, c, frame(bad, segs, payload))
	if got := ackOf(t, c); got != (ackEntry{5, fabric.ErrCRC}) {
		t.Fatalf("an altered write is answered with %+v", got)
	}
	var done [1]fabric.Completion
	if n, err := r.cq.Read(done[:]); n != 0 || !errors.Is(err, fabric.ErrAgain) {
		t.Fatalf("somebody was told of an altered write: %+v", done)
	}
	copy(payload, "sixteen bytes of")
	send(t, c, frame(write, segs, payload))
	if got := ackOf(t, c); got != (ackEntry{5, 0}) || string(mem[8:24]) != string(payload) {
		t.Fatalf("a sound write is answered with %+v", got)
	}
	if n, err := r.cq.Read(done[:]); n != 1 || done[0].Data != 99 {
		t.Fatalf("%d entries, %v: %+v", n, err, done)
	}
}

// TestWhatSteersIsAlwaysChecked alters tables and entries, without any flag.
func TestWhatSteersIsAlwaysChecked(t *testing.T) {
	for name, h := range map[string]header{
		"the table of a write":  {kind: kindWrite, count: 1, length: 16},
		"the table of a read":   {kind: kindRead, count: 1, length: 16},
		"the entries of an ack": {kind: kindAck, count: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			c := r.dial(1)[0]
			mem, key := r.share(64)
			h.region, h.secret = key.ID, key.Secret
			var segs []fabric.RSeg
			payload := []byte("sixteen bytes of")
			switch h.kind {
			case kindAck:
				payload = payload[:ackEntryLen]
			case kindRead:
				segs, payload = []fabric.RSeg{{Addr: 8, Len: 16}}, nil
			default:
				segs = []fabric.RSeg{{Addr: 8, Len: 16}}
			}
			b := frame(h, segs, payload)
			b[headerLen+7] ^= 16 // an offset, or a ticket
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
	for _, sum := range []uint32{tableSum(0, make([]byte, 64)), 4711} {
		_, err = r.ep.Submit([]fabric.Op{{Kind: fabric.OpRead, Seg: fabric.Seg{Addr: sys.AddrOf(back), Len: 64}, RSeg: fabric.RSeg{Len: 64, Key: key}}})
		r.must(err)
		h, _ := readFrameTable(t, c)
		send(t, c, frame(header{kind: kindReply, ticket: h.ticket, flags: flagSum, length: 64, sum: sum}, nil, make([]byte, 64)))
		err := r.outcome()
		if want := sum != 4711; (err == nil) != want || !want && !errors.Is(err, fabric.ErrCRC) {
			t.Errorf("sum %#x: %v", sum, err)
		}
	}
}

// readFrameTable reads a header and the table of a read with one segment.
func readFrameTable(t *testing.T, c net.Conn) (h header, table []byte) {
	t.Helper()
	b := make([]byte, headerLen+segmentLen)
	for n := 0; n < len(b); {
		k, err := c.Read(b[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if err := parseHeader(&h, b); err != nil {
		t.Fatal(err)
	}
	return h, b[headerLen:]
}

func send(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// ackOf reads an ack of one op.
func ackOf(t *testing.T, c net.Conn) ackEntry {
	t.Helper()
	h, body := readFrame(t, c)
	if h.kind != kindAck || h.count != 1 || tableSum(0, body) != h.table {
		t.Fatalf("%+v in place of an ack", h)
	}
	return parseAck(body)
}

// outcome waits for the end of an op of the rig's endpoint.
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
