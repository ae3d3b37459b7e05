// SPDX-License-Identifier: MIT

package wire

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/gpunic/mlx5"
)

// FuzzPacket: bytes from a wire are refused or read, and what was read is written as it came.
func FuzzPacket(f *testing.F) {
	for _, p := range []Packet{
		{Kind: KindWrite, Flag: FlagFirst | FlagLast | FlagAckReq, From: 1, To: 2, Seq: 3, Addr: 4, Key: 5, Length: 6, Data: []byte("write!")},
		{Kind: KindAtomic, Seq: 7, Atomic: mlx5.Atomic{Width: 8, Swap: 1, Compare: 2, SwapMask: 3, CompareMsk: 4}},
		{Kind: KindAck, Ack: NakRNR, Code: 12, Seq: SeqMask},
	} {
		b := p.Append(nil)
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		var err error
		decodetest.Bounded(t, len(b), func() { p, err = readPacket(bytes.NewReader(b)) })
		if err != nil {
			return
		}
		var again Packet
		if err := again.Parse(p.Append(nil)); err != nil || !bytes.Equal(again.Data, p.Data) {
			t.Fatalf("%+v came back as %+v: %v", p, again, err)
		}
		if p.Data, again.Data = nil, nil; !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v came back as %+v", p, again)
		}
	})
}

// FuzzGID: any GID of a peer is an address or an error.
func FuzzGID(f *testing.F) {
	for _, kind := range []byte{gidLoop, gidUnix, gidTCP} {
		g := newGID(kind)
		f.Add(g[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != len(mlx5.GID{}) {
			return
		}
		decodetest.Bounded(t, len(b), func() {
			if network, address, err := addressOf(mlx5.GID(b)); err == nil && (network == "" || address == "") {
				t.Errorf("%x: network %q, address %q", b, network, address)
			}
		})
	})
}
