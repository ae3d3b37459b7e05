// SPDX-License-Identifier: MIT

package p2p

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"mori/core/device"
	"mori/core/fabric"
)

var (
	someKey   = fabric.RegionKey{ID: 7, Secret: [16]byte{1, 2, 3}}
	somePlace = place{addr: 1 << 40, size: 4096, access: allRights, kind: fabric.MemCUDA, uuid: "GPU-1", ipc: device.IPCHandle{Handle: [64]byte{9}, Offset: 8, Bytes: 8192}, why: "no reason"}
)

func TestFramesComeBack(t *testing.T) {
	lend := lendFrame{3, somePlace}
	if got, err := parseLend(lend.encode()); err != nil || !reflect.DeepEqual(got, lend) {
		t.Errorf("lend: %+v, %v", got, err)
	}
	ask := askFrame{4, someKey}
	if got, err := parseAsk(ask.encode()); err != nil || got != ask {
		t.Errorf("ask: %+v, %v", got, err)
	}
	refuse := refuseFrame{5, fabric.ErrNoKey}
	if got, err := parseRefuse(refuse.encode()); err != nil || got != refuse {
		t.Errorf("refuse: %+v, %v", got, err)
	}
	done := doneFrame{6, fabric.ErrRange, true, "words"}
	if got, err := parseDone(done.encode()); err != nil || got != done {
		t.Errorf("done: %+v, %v", got, err)
	}
	order := orderFrame{number: 8, share: shareBit | 2, key: someKey, write: true, last: true, parts: []orderPart{{1, 2, 3}, {4, 5, 6}}}
	if got, err := parseOrder(order.append(nil), nil); err != nil || !reflect.DeepEqual(got, order) {
		t.Errorf("order: %+v, %v", got, err)
	}
	if full := (&orderFrame{parts: make([]orderPart, partsOfFrame)}).append(nil); len(full) > 4096 {
		t.Errorf("a full order frame has %d bytes", len(full))
	}
	h := hello{minVersion, maxVersion, process()}
	if got, err := parseHello(h.encode()); err != nil || got != h {
		t.Errorf("hello: %+v, %v", got, err)
	}
}

// Long words are cut, not refused.
func TestLongWords(t *testing.T) {
	p := somePlace
	p.why, p.uuid = string(bytes.Repeat([]byte("w"), 9000)), string(bytes.Repeat([]byte("u"), 9000))
	got, err := parseLend(lendFrame{1, p}.encode())
	if err != nil || len(got.place.why) != maxText || len(got.place.uuid) != maxUUID {
		t.Errorf("%d and %d bytes, %v", len(got.place.why), len(got.place.uuid), err)
	}
	if _, err := parseDone(doneFrame{text: p.why}.encode()); err != nil {
		t.Error(err)
	}
}

// What is accepted says the same when it is sent on; nothing else harms.
func FuzzFrames(f *testing.F) {
	f.Add(uint8(frameLend), lendFrame{3, somePlace}.encode())
	f.Add(uint8(frameAsk), askFrame{4, someKey}.encode())
	f.Add(uint8(frameRefuse), refuseFrame{5, fabric.ErrNoKey}.encode())
	f.Add(uint8(frameDone), doneFrame{6, fabric.ErrRange, true, "words"}.encode())
	f.Add(uint8(frameOrder), (&orderFrame{number: 8, share: 2, key: someKey, write: true, last: true, parts: []orderPart{{1, 2, 3}}}).append(nil))
	f.Add(uint8(frameReturn), encodeTicket(9))
	f.Add(uint8(255), (&hello{minVersion, maxVersion, process()}).encode())
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		whole := slices.Clone(b)
		var again []byte
		var err error
		switch kind {
		case frameLend:
			var x lendFrame
			if x, err = parseLend(b); err == nil && len(x.place.uuid) <= maxUUID && len(x.place.why) <= maxText { // else they are cut
				again = x.encode()
			} else {
				return
			}
		case frameAsk:
			var x askFrame
			if x, err = parseAsk(b); err == nil {
				again = x.encode()
			}
		case frameRefuse:
			var x refuseFrame
			if x, err = parseRefuse(b); err == nil {
				again = x.encode()
			}
		case frameDone:
			var x doneFrame
			if x, err = parseDone(b); err == nil {
				again = x.encode()
			}
		case frameOrder:
			var x orderFrame
			if x, err = parseOrder(b, nil); err == nil {
				again = x.append(nil)
			}
		case 255:
			_, _ = parseHello(b)
			return
		default:
			var x uint64
			if x, err = parseTicket(b); err == nil {
				again = encodeTicket(x)
			}
		}
		if err == nil && !bytes.Equal(again, whole) {
			t.Errorf("kind %d: %x was taken for %x", kind, whole, again)
		}
	})
}
