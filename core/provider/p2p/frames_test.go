// SPDX-License-Identifier: MIT

package p2p

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/provider/internal/grant"
)

var (
	someKey = fabric.RegionKey{ID: 7, Secret: [16]byte{1, 2, 3}}
	someRef = regionRef{addr: 1 << 40, size: 4096, access: allRights, kind: fabric.MemCUDA, uuid: "GPU-1", ipc: device.IPCHandle{Handle: [64]byte{9}, Offset: 8, Bytes: 8192}, why: "no reason"}
)

func TestFramesComeBack(t *testing.T) {
	if got, err := parseRegionRef(someRef.encode()); err != nil || !reflect.DeepEqual(got, someRef) {
		t.Errorf("region reference: %+v, %v", got, err)
	}
	done := doneFrame{6, fabric.ErrRange, true, "words"}
	if got, err := parseDone(done.encode()); err != nil || got != done {
		t.Errorf("done: %+v, %v", got, err)
	}
	order := orderFrame{number: 8, share: grant.ShareBit | 2, key: someKey, write: true, last: true, parts: []orderPart{{1, 2, 3}, {4, 5, 6}}}
	if got, err := parseOrder(order.append(nil), nil); err != nil || !reflect.DeepEqual(got, order) {
		t.Errorf("order: %+v, %v", got, err)
	}
	if full := (&orderFrame{parts: make([]orderPart, partsOfFrame)}).append(nil); len(full) > 4096 {
		t.Errorf("a full order frame has %d bytes", len(full))
	}
	h := handshakeMessage{minVersion, maxVersion, process()}
	if got, err := parseHandshake(h.encode()); err != nil || got != h {
		t.Errorf("handshake: %+v, %v", got, err)
	}
}

// Long words are cut, not refused.
func TestLongWords(t *testing.T) {
	p := someRef
	p.why, p.uuid = string(bytes.Repeat([]byte("w"), 9000)), string(bytes.Repeat([]byte("u"), 9000))
	got, err := parseRegionRef(p.encode())
	if err != nil || len(got.why) != maxText || len(got.uuid) != maxUUID {
		t.Errorf("%d and %d bytes, %v", len(got.why), len(got.uuid), err)
	}
	if _, err := parseDone(doneFrame{text: p.why}.encode()); err != nil {
		t.Error(err)
	}
}

// What is accepted says the same when it is sent on; nothing else harms.
func FuzzFrames(f *testing.F) {
	f.Add(grant.FrameGrant, someRef.encode()) // behind its ticket
	f.Add(frameDone, doneFrame{6, fabric.ErrRange, true, "words"}.encode())
	f.Add(frameOrder, (&orderFrame{number: 8, share: 2, key: someKey, write: true, last: true, parts: []orderPart{{1, 2, 3}}}).append(nil))
	f.Add(uint8(255), (&handshakeMessage{minVersion, maxVersion, process()}).encode())
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		whole := slices.Clone(b)
		var again []byte
		var err error
		switch kind {
		case grant.FrameGrant:
			var x regionRef
			decodetest.Bounded(t, len(b), func() { x, err = parseRegionRef(b) })
			if err == nil && len(x.uuid) <= maxUUID && len(x.why) <= maxText { // else they are cut
				again = x.encode()
			} else {
				return
			}
		case frameDone:
			var x doneFrame
			decodetest.Bounded(t, len(b), func() { x, err = parseDone(b) })
			if err == nil {
				again = x.encode()
			}
		case frameOrder:
			var x orderFrame
			decodetest.Bounded(t, len(b), func() { x, err = parseOrder(b, nil) })
			if err == nil {
				again = x.append(nil)
			}
		case 255:
			decodetest.Bounded(t, len(b), func() { _, _ = parseHandshake(b) })
			return
		default:
			return
		}
		if err == nil && !bytes.Equal(again, whole) {
			t.Errorf("kind %d: %x was taken for %x", kind, whole, again)
		}
	})
}
