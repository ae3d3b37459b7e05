// SPDX-License-Identifier: MIT

package verbs

import (
	"fmt"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/native/verbs/verbstest"
)

// gap is what lies behind each piece of scattered memory, where nobody may write.
var gap = []byte{0xee, 0xee, 0xee, 0xee, 0xee}

// scatter cuts n bytes into pieces of different lengths, the last of them first in memory.
func scatter(n uint64, pieces int) (all []fabric.Seg) {
	at := n + 5*uint64(pieces)
	for i, left := 0, n; i < pieces; i++ {
		k := left
		if i < pieces-1 {
			k = min(left, n/uint64(pieces)+uint64(i%3))
		}
		at -= k + 5
		all = append(all, fabric.Seg{Addr: at, Len: k})
		left -= k
	}
	return all
}

// of are the bytes of m's pieces.
func of(m *memory, pieces []fabric.Seg) (b []byte) {
	for _, s := range pieces {
		b = append(b, m.bytes[s.Addr:][:s.Len]...)
	}
	return b
}

// lay puts b into m's pieces, and gap behind each.
func lay(m *memory, pieces []fabric.Seg, b []byte) {
	for _, s := range pieces {
		b = b[copy(m.bytes[s.Addr:][:s.Len], b):]
		copy(m.bytes[s.Addr+s.Len:][:5], gap)
	}
}

// untouched reports whether what is behind the pieces is gap still.
func untouched(m *memory, pieces []fabric.Seg) error {
	for _, s := range pieces {
		if err := same(m.bytes[s.Addr+s.Len:][:5], gap); err != nil {
			return fmt.Errorf("behind %d bytes at %d: %w", s.Len, s.Addr, err)
		}
	}
	return nil
}

// moves writes and reads n bytes in so many pieces on either side.
func moves(tb testing.TB, a *end, local, remote *memory, key, n uint64, here, there int) {
	tb.Helper()
	from, to := scatter(n, here), scatter(n, there)
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		want := pattern(n, int(n)+int(kind))
		src, dst, srcAt, dstAt := local, remote, from, to
		if kind == fabric.OpRead {
			src, dst, srcAt, dstAt = remote, local, to, from
		}
		lay(src, srcAt, want)
		lay(dst, dstAt, make([]byte, n))
		op := fabric.Op{Kind: kind, RSeg: fabric.RSeg{Addr: to[0].Addr, Len: to[0].Len, Key: key}, Seg: local.seg(from[0].Addr, from[0].Len)}
		for _, s := range from[1:] {
			op.More = append(op.More, local.seg(s.Addr, s.Len))
		}
		for _, s := range to[1:] {
			op.RMore = append(op.RMore, fabric.RSeg{Addr: s.Addr, Len: s.Len, Key: key})
		}
		if err := a.do(op); err != nil {
			tb.Fatalf("%v of %d bytes in %d and %d pieces: %v", kind, n, here, there, err)
		}
		if err := same(of(dst, dstAt), want); err != nil {
			tb.Fatalf("%v of %d bytes in %d and %d pieces: %v", kind, n, here, there, err)
		}
		if err := untouched(dst, dstAt); err != nil {
			tb.Fatalf("%v of %d bytes in %d and %d pieces: %v", kind, n, here, there, err)
		}
	}
}

const longest = 5<<20 + 3

// Whatever two sides are set to, bytes arrive where they belong, over as many rails and queue pairs
// as both want.
func TestRailsAndPairs(t *testing.T) {
	for name, c := range map[string]struct {
		a, b         Settings
		rails, pairs int // of a rail
	}{
		"two rails of three pairs":   {Settings{Rails: 2, QPs: 3}, Settings{Rails: 2, QPs: 3}, 2, 3},
		"who dials wants more":       {Settings{Rails: 2, QPs: 3}, Settings{Rails: 1, QPs: 2}, 1, 2},
		"who answers wants more":     {Settings{Rails: 1, QPs: 1}, Settings{Rails: 2, QPs: 4}, 1, 1},
		"two work requests":          {Settings{SendWR: 2}, Settings{SendWR: 2}, 1, 1},
		"one work request, two QPs":  {Settings{SendWR: 1, QPs: 2}, Settings{QPs: 2}, 1, 2},
		"one piece of a request":     {Settings{SendSGE: 1}, Settings{}, 1, 1},
		"nothing inline":             {Settings{Inline: -1, RecvWR: 1}, Settings{RecvWR: 1}, 1, 1},
		"a smaller MTU here":         {Settings{MTU: 1024}, Settings{}, 1, 1},
		"a smaller MTU there":        {Settings{}, Settings{MTU: 1024}, 1, 1},
		"posts of one, polling":      {Settings{PostBatch: 1, Polling: true}, Settings{Polling: true}, 1, 1},
		"a small completion queue":   {Settings{CQE: 12, QPs: 3}, Settings{QPs: 3}, 1, 3},
		"all that there is, relaxed": {Settings{Rails: 8, QPs: 16, Relaxed: true, SendSGE: 64}, Settings{Rails: 8, QPs: 16}, 0, 16},
	} {
		t.Run(name, func(t *testing.T) {
			if c.rails > 1 {
				verbstest.Need(t, c.rails)
			}
			a, b := newEndsOf(t, way{Settings: c.a}, way{Settings: c.b})
			local, remote := a.memory(t, longest+1000), b.memory(t, longest+1000)
			key := a.imports(t, remote.mr)
			for _, n := range []uint64{0, 1, 64, 4 << 10, 256 << 10} {
				moves(t, a, local, remote, key, n, 1, 1)
				moves(t, a, local, remote, key, n, 7, 5)
			}
			moves(t, a, local, remote, key, longest, 7, 5)
			moves(t, a, local, remote, key, 100_000, 150, 40)
			for range 2 * 16 { // short ones take turns
				ok(t, a.do(local.write(8, key)))
			}
			wants(t, a, c.rails, c.pairs)
			wants(t, b, c.rails, c.pairs)
		})
	}
}

// wants checks how many rails and pairs an end has, that the initiator's were all used, and what it
// says of them.
func wants(tb testing.TB, e *end, rails, pairs int) {
	tb.Helper()
	dp := e.path(tb)
	if rails == 0 {
		rails = len(dp.all.nics)
	}
	if len(dp.rails.all) != rails || len(dp.rails.pairs) != rails*pairs {
		tb.Errorf("%d rails with %d pairs in all, want %d with %d each", len(dp.rails.all), len(dp.rails.pairs), rails, pairs)
	}
	path := e.reason()
	for _, r := range dp.rails.all {
		if !strings.Contains(path, r.String()) {
			tb.Errorf("%s is not in %q", r, path)
		}
	}
	if strings.Contains(path, "TCP") {
		tb.Errorf("not all went by NICs: %s", path)
	}
	used := 0
	for _, p := range dp.rails.pairs {
		p.mu.Lock()
		if p.tail > 0 {
			used++
		}
		if p.head != p.tail {
			tb.Errorf("%d work requests of queue pair %d have not ended", p.tail-p.head, p.num)
		}
		p.mu.Unlock()
	}
	if used != 0 && used != len(dp.rails.pairs) {
		tb.Errorf("%d of %d queue pairs were used", used, len(dp.rails.pairs))
	}
}

// Long ops are shared out among the devices, by their own word.
func TestDevicesShareTheWork(t *testing.T) {
	verbstest.NeedEmulated(t)
	verbstest.Need(t, 2)
	a, b := newEnds(t, way{Settings: Settings{Rails: 2, QPs: 2}})
	local, remote := a.memory(t, 8<<20), b.memory(t, 8<<20)
	key := a.imports(t, remote.mr)
	var before [2]uint64
	for i := range before {
		before[i] = verbstest.Bytes(t, i)
	}
	for range 4 {
		ok(t, a.do(local.write(8<<20, key)))
	}
	for i := range before {
		if n := verbstest.Bytes(t, i) - before[i]; n != 16<<20 {
			t.Errorf("device %d moved %d bytes, want %d", i, n, 16<<20)
		}
	}
}

// 10000 ops pass queues of a few places, which never overrun: a pair would fail.
func TestManyOpsInSmallQueues(t *testing.T) {
	small := Settings{SendWR: 4, RecvWR: 2, QPs: 2, CQE: 14}
	a, b := newEnds(t, way{Settings: small})
	const slots = 64
	local, remote := a.memory(t, slots*8), b.memory(t, slots*8)
	local.fill(1)
	key := a.imports(t, remote.mr)
	count := 10000
	if verbstest.Real() || raceEnabled {
		count = 3000
	}
	received := make(chan error, 1)
	go func() { received <- b.hears(count/10, nil) }()
	for begun, ended := 0, 0; ended < count; {
		for begun < count && begun-ended < 200 {
			at := uint64(begun%slots) * 8
			op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(at, 8), RSeg: fabric.RSeg{Addr: at, Len: 8, Key: key}}
			if begun%10 == 0 {
				op.Flags, op.Data = fabric.OpRemoteData, uint64(begun/10)
			}
			ok(t, a.submit(op))
			begun++
		}
		_, err := a.next()
		ok(t, err)
		ended++
	}
	ok(t, <-received)
	ok(t, same(remote.bytes, local.bytes))
	wants(t, a, 1, 2)
}

// hears takes remote data 0 to n-1, each once, in any order, and shows it to see.
func (e *end) hears(n int, see func(data uint64) error) error {
	seen := make(map[uint64]bool)
	for range n {
		c, err := e.next()
		switch {
		case err != nil:
			return err
		case c.Kind != fabric.OpRemoteWrite || c.Flags != fabric.OpRemoteData:
			return fmt.Errorf("a completion is %+v", c)
		case c.Data >= uint64(n) || seen[c.Data]:
			return fmt.Errorf("remote data %d of %d came twice or never was", c.Data, n)
		}
		seen[c.Data] = true
		if see != nil {
			if err := see(c.Data); err != nil {
				return err
			}
		}
	}
	return nil
}
