// SPDX-License-Identifier: MIT

package interchange

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/abi"
	"mori/native/nic"
)

func ownPair(t *testing.T, o Options) (a, b *Side) {
	t.Helper()
	p := pair{T: t}
	sides := [2]*Side{}
	for i := range sides {
		s, err := Open(o)
		p.must(err)
		t.Cleanup(func() { p.closes(s) })
		sides[i] = s
	}
	p.must(join(sides[0], sides[1], 4096))
	return sides[0], sides[1]
}

// TestKernelsOfOnesOwn posts by what a View says: messages arrive where receives were posted, in
// their order and with their length.
func TestKernelsOfOnesOwn(t *testing.T) {
	a, b := ownPair(t, Options{Device: "emu0", GPU: "cpu", Receives: 2})
	sent := pattern(4096)
	if err := errors.Join(a.Fill(0, sent), b.Fill(0, make([]byte, 4096)), b.Receive(512, 256), b.Receive(1024, 256)); err != nil {
		t.Fatal(err)
	}
	v, err := a.View()
	if err != nil || v.Proxy || !a.OnCPU() || v.Mine.Bytes != 4096 || v.Peer.Bytes != 4096 {
		t.Fatalf("%+v, %v", v, err)
	}
	list, err := sys.Alloc(2 * abi.NICWorkBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.Free(list) }()
	first := abi.NICWork{Kind: abi.NICKindSend, Local: v.Mine.Addr, LKey: v.Mine.LKey, Bytes: 100}
	second := abi.NICWork{Kind: abi.NICKindSend, Local: v.Mine.Addr + 100, LKey: v.Mine.LKey, Bytes: 200, Flags: abi.NICImmediate, Immediate: 7}
	copy(list, append(abi.Bytes(&first), abi.Bytes(&second)...))
	out, err := nic.Run(nic.Grid{Blocks: 1, Threads: 4}, nic.Post{Queue: v.Queue, Limit: v.Limit, Work: sys.AddrOf(list), Count: 2, Posters: abi.NICPostersBlock})
	if err = errors.Join(err, out.Err()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []Arrival{{Bytes: 100}, {Bytes: 200, Immediate: 7}} {
		got, err := b.Received(context.Background())
		if err != nil || got.Bytes != want.Bytes || want.Immediate != 0 && got.Immediate != want.Immediate {
			t.Errorf("message %d: %+v, %v", i, got, err)
		}
	}
	got := make([]byte, 4096)
	if err := b.Fetch(0, got); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 4096)
	copy(want[512:], sent[:100])
	copy(want[1024:], sent[100:300])
	if !bytes.Equal(got, want) {
		t.Error("what was received is not what was sent")
	}
}

// TestMessagesAreWaitedForWithinLimits: a receive that nobody answers ends, and what makes no sense
// is refused.
func TestMessagesAreWaitedForWithinLimits(t *testing.T) {
	a, b := ownPair(t, Options{Device: "emu0", GPU: "cpu", Receives: 1, Limit: 50 * time.Millisecond})
	if _, err := b.Received(context.Background()); !errors.Is(err, ErrOrder) {
		t.Errorf("no receive was posted: %v", err)
	}
	if err := errors.Join(b.Receive(0, 64), b.Receive(64, 64)); err != nil {
		t.Fatal(err)
	}
	if err := b.Receive(128, 64); !errors.Is(err, fabric.ErrAgain) {
		t.Errorf("a third receive of two: %v", err)
	}
	if _, err := b.Received(context.Background()); !errors.Is(err, fabric.ErrTimeout) {
		t.Errorf("nothing is sent: %v", err)
	}
	for what, got := range map[string]error{
		"past the end":       b.Receive(4090, 64),
		"a fill too far":     a.Fill(4096, []byte{1}),
		"a fetch that wraps": a.Fetch(1<<63, make([]byte, 8)),
	} {
		if !errors.Is(got, fabric.ErrRange) {
			t.Errorf("%s: %v", what, got)
		}
	}
	if err := a.Launch(context.Background(), "any", []byte{1}, 4); !errors.Is(err, fabric.ErrNotSupported) {
		t.Errorf("a launch on the CPU: %v", err)
	}
	if err := a.Launch(context.Background(), "any", nil, 4); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("a launch without arguments: %v", err)
	}
}

// TestReceivesAreANICs: a proxy has none, and nor has a queue that was made without.
func TestReceivesAreANICs(t *testing.T) {
	for _, dev := range []string{"proxy", "emu0"} {
		a, _ := ownPair(t, Options{Device: dev, GPU: "cpu"})
		if err := a.Receive(0, 64); !errors.Is(err, ErrOrder) {
			t.Errorf("over %s: %v", dev, err)
		}
	}
	s, err := Open(Options{Device: "emu0", GPU: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.View(); !errors.Is(err, ErrOrder) {
		t.Errorf("a view of nothing: %v", err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}
