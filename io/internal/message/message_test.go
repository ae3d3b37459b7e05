// SPDX-License-Identifier: MIT

package message

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mori/core/decode/decodetest"
	"mori/io/internal/descriptor"
	"mori/io/internal/identity"
	"mori/io/internal/message/messagetest"
)

// bodies returns one of each body of a message.
func bodies() []any {
	return []any{new(Hello), new(Challenge), new(Proof), new(Welcome), new(AskRegion), new(Region), new(Drop),
		new(Dropped), new(Tags), new(Tagged), new(Beat), new(Failure)}
}

// No body makes its reader allocate more than the bound, because the runtime's fatal "out of
// memory" cannot be recovered from.
func TestMessagesAllocateNoMoreThanTheyBring(t *testing.T) {
	for _, body := range messagetest.HostileBodies() {
		for _, to := range bodies() {
			decodetest.Bounded(t, len(body), func() { _ = Decode(body, to) })
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	_ = Write(&b, TypeHello, &Hello{Version: 1, Key: "k"})
	f.Add(b.Bytes())
	b.Reset()
	_ = Write(&b, TypeWelcome, &Welcome{Token: []byte("t"), Endpoints: []Endpoint{{Name: "tcp", Addr: "a"}}})
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		var kind Type
		var body []byte
		var err error
		decodetest.Bounded(t, len(in), func() { kind, body, err = Read(bytes.NewReader(in)) })
		if err != nil {
			return
		}
		if len(body) != int(binary.BigEndian.Uint32(in[1:])) {
			t.Fatalf("type %d with %d bytes from %x", kind, len(body), in)
		}
		for _, to := range bodies() {
			decodetest.Bounded(t, len(in), func() { _ = Decode(body, to) })
		}
	})
}

func FuzzUnpackTags(f *testing.F) {
	key := descriptor.RegionKey{ID: 7, Secret: [16]byte{1}}
	f.Add(PackTags([]Tag{{UID: 0, Text: "a"}, {1 << 63, "req-7", key}, {300, strings.Repeat("é", MaxTag/2), key}}))
	f.Add([]byte{5, 0})
	f.Add(PackTags(slices.Repeat([]Tag{{Text: "a"}}, MaxBytes/3-10)))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 'a'})
	f.Fuzz(func(t *testing.T, in []byte) {
		var all []Tag
		var err error
		decodetest.Bounded(t, len(in), func() { all, err = UnpackTags(in) })
		if err != nil {
			return
		}
		for _, x := range all {
			if x.Text == "" || CheckTag(x.Text) != nil {
				t.Fatalf("tag %q", x.Text)
			}
		}
		if again, err := UnpackTags(PackTags(all)); err != nil || !slices.Equal(all, again) {
			t.Fatalf("%v: %v, then %v", err, all, again)
		}
	})
}

func TestABatchOfTheLongestTagsFitsAMessage(t *testing.T) {
	all := make([]Tag, MostTags)
	for i := range all { // each in its own region
		all[i] = Tag{1<<64 - 1, strings.Repeat("x", MaxTag), descriptor.RegionKey{ID: 1<<32 - 1 - uint32(i)}}
	}
	var out bytes.Buffer
	if err := Write(&out, TypeTags, &Tags{Packed: PackTags(all)}); err != nil {
		t.Error(err)
	}
}

// TestEveryFieldIsProven changes each field of the handshake's messages and checks that the proofs
// and signatures cover all of them.
func TestEveryFieldIsProven(t *testing.T) {
	h := Hello{Key: "a", Nonce: []byte{1}, PublicKey: []byte{2}}
	c := Challenge{Nonce: []byte{3}, PublicKey: []byte{4}}
	w := Welcome{Key: "b", Token: []byte{5}, Endpoints: []Endpoint{{Name: "tcp", Addr: "x"}}}
	before := identity.Digest("", Closing(&h, &c, &w)...)
	differ := func(what string, message any) {
		v := reflect.ValueOf(message).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "_msgpack" || name == "Proof" || name == "Signature" {
				continue
			}
			f := v.Field(i)
			old := reflect.New(f.Type()).Elem()
			old.Set(f)
			switch f.Interface().(type) {
			case int:
				f.SetInt(f.Int() + 1)
			case uint64:
				f.SetUint(f.Uint() + 1)
			case string:
				f.SetString(f.String() + "x")
			case bool:
				f.SetBool(!f.Bool())
			case []byte:
				f.SetBytes([]byte{0xff})
			case []Endpoint:
				f.Set(reflect.ValueOf([]Endpoint{{Name: "tcp", Addr: "y"}}))
			default:
				t.Fatalf("field %s of a %s has a type that this test does not know", name, what)
			}
			if bytes.Equal(before, identity.Digest("", Closing(&h, &c, &w)...)) {
				t.Errorf("nothing covers field %s of a %s", name, what)
			}
			f.Set(old)
		}
	}
	differ("hello", &h)
	differ("challenge", &c)
	differ("welcome", &w)
}

// TestTheWireFormatIsKept checks bytes that engines of other versions read.
func TestTheWireFormatIsKept(t *testing.T) {
	for want, m := range map[string]struct {
		kind Type
		body any
	}{
		"01000000211e1976e79904a161a16ecf0000000000000005a162cf000000000000012cc40101c3c40102": {TypeHello, &Hello{Version: 4, Key: "a", NodeID: "n", Incarnation: 5, PeerKey: "b", PeerIncarnation: 300,
			Nonce: []byte{1}, Auth: true, PublicKey: []byte{2}}},
		"0800000013d24e42c494c40101cf0000000000000005c40102c40103": {TypeChallenge, &Challenge{Nonce: []byte{1}, Incarnation: 5, PublicKey: []byte{2}, Proof: []byte{3}}},
		"0900000007b2b1bb8492c40101c40102":                         {TypeProof, &Proof{Proof: []byte{1}, Signature: []byte{2}}},
		"020000002386b76b0e9904a162a16ecf000000000000012cc3c401019192a3746370a3783a31c40102c40103": {TypeWelcome, &Welcome{Version: 4, Key: "b", NodeID: "n", Incarnation: 300, Notify: true, Token: []byte{1},
			Endpoints: []Endpoint{{Name: "tcp", Addr: "x:1"}}, Proof: []byte{2}, Signature: []byte{3}}},
		"040000000b30c9f0ca92c3cf0000010000000000":                                 {TypeRegion, &Region{Known: true, Size: 1 << 40}},
		"0a0000001b19bc6f6591c418070100000000000000000000000000000001ac0203726571": {TypeTags, &Tags{Packed: PackTags([]Tag{{300, "req", descriptor.RegionKey{ID: 7, Secret: [16]byte{1}}}})}},
	} {
		var out bytes.Buffer
		if err := Write(&out, m.kind, m.body); err != nil || hex.EncodeToString(out.Bytes()) != want {
			t.Errorf("%+v is %x, want %s; %v", m.body, out.Bytes(), want, err)
		}
	}
}
