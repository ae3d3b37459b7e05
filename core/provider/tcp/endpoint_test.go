// SPDX-License-Identifier: MIT

package tcp_test

import (
	"bytes"
	"fmt"
	"testing"

	"mori/core/fabric"
	"mori/core/provider/tcp"
)

func TestWriteAndReadArriveWhole(t *testing.T) {
	for _, links := range []int{1, 2, 4} {
		for _, n := range []int{0, 1, 8, 4096, 4097, 70_000, 3 << 20} {
			t.Run(fmt.Sprintf("%d bytes over %d links", n, links), func(t *testing.T) {
				a, b := newPair(t, tcp.Options{Links: links})
				src, far, back := alloc(t, n+1)[:n], alloc(t, n+1), alloc(t, n+1)[:n]
				pattern(src, links)
				key := share(t, b, a, far)
				submit(t, a, fabric.Op{Kind: fabric.OpWrite, Seg: seg(src), RSeg: fabric.RSeg{Addr: 1, Len: uint64(n), Key: key}, Ctx: 5})
				if c := wait(t, a, 1)[0]; c.Ctx != 5 || c.Kind != fabric.OpWrite || c.Len != uint64(n) {
					t.Fatalf("completion %+v", c)
				}
				if !bytes.Equal(far[1:], src) {
					t.Fatal("written bytes differ")
				}
				submit(t, a, fabric.Op{Kind: fabric.OpRead, Seg: seg(back), RSeg: fabric.RSeg{Addr: 1, Len: uint64(n), Key: key}})
				wait(t, a, 1)
				if !bytes.Equal(back, src) {
					t.Fatal("read bytes differ")
				}
			})
		}
	}
}

func TestScatteredSegments(t *testing.T) {
	a, b := newPair(t, tcp.Options{})
	const blocks, block = 3000, 512
	src, far := alloc(t, blocks*block), alloc(t, blocks*block)
	pattern(src, 3)
	key := share(t, b, a, far)
	// The local side is one segment; the remote side has blocks in reverse order.
	op := fabric.Op{Kind: fabric.OpWrite, Seg: seg(src)}
	for i := range blocks {
		r := fabric.RSeg{Addr: uint64((blocks - 1 - i) * block), Len: block, Key: key}
		if i == 0 {
			op.RSeg = r
		} else {
			op.RMore = append(op.RMore, r)
		}
	}
	back := alloc(t, blocks*block)
	get := fabric.Op{Kind: fabric.OpRead, Seg: seg(back), RSeg: op.RSeg, RMore: op.RMore, Flags: fabric.OpFence}
	submit(t, a, op, get)
	wait(t, a, 2)
	for i := range blocks {
		if !bytes.Equal(far[(blocks-1-i)*block:][:block], src[i*block:][:block]) {
			t.Fatalf("block %d differs", i)
		}
	}
	if !bytes.Equal(back, src) {
		t.Fatal("read bytes differ")
	}
}

func TestMessagesKeepOrder(t *testing.T) {
	sizes := []int{0, 10, 5000, 70_000, 1, 2 << 20, 3, 256 << 10, 256<<10 + 1, 9}
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("receives posted late %v", early), func(t *testing.T) {
			a, b := newPair(t, tcp.Options{})
			var recvs, sends []fabric.Op
			var got, sent [][]byte
			for i, n := range sizes {
				in, out := alloc(t, 2<<20), alloc(t, n+1)[:n]
				pattern(out, i)
				got, sent = append(got, in), append(sent, out)
				recvs = append(recvs, fabric.Op{Kind: fabric.OpRecv, Seg: seg(in), Ctx: uint64(i)})
				sends = append(sends, fabric.Op{Kind: fabric.OpSend, Seg: seg(out), Flags: fabric.OpRemoteData, Data: uint64(i) + 100})
			}
			if early {
				submit(t, a, sends...)
				submit(t, b, recvs...)
			} else {
				submit(t, b, recvs...)
				submit(t, a, sends...)
			}
			wait(t, a, len(sizes))
			for i, c := range wait(t, b, len(sizes)) {
				if c.Ctx != uint64(i) || c.Len != uint64(sizes[i]) || c.Data != uint64(i)+100 {
					t.Fatalf("completion %d is %+v", i, c)
				}
				if !bytes.Equal(got[i][:sizes[i]], sent[i]) {
					t.Fatalf("message %d differs", i)
				}
			}
		})
	}
}

// TestRemoteDataOnManyLinksFindsRoom lets the readers of all links wait for room in a queue of one
// entry.
func TestRemoteDataOnManyLinksFindsRoom(t *testing.T) {
	p := tcp.New(tcp.Options{Links: 4})
	a, b := newSide(t, p), newSideQueue(t, p, 1)
	connect(t, a, b)
	const count, block = 200, 32 << 10
	src := alloc(t, block)
	key := share(t, b, a, alloc(t, block))
	op := fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: seg(src), RSeg: fabric.RSeg{Len: block, Key: key}}
	ops := make([]fabric.Op, count)
	for i := range ops {
		ops[i] = op
		ops[i].Data = uint64(i)
	}
	submit(t, a, ops...)
	seen := map[uint64]bool{}
	for range count {
		seen[wait(t, b, 1)[0].Data] = true
	}
	if len(seen) != count {
		t.Errorf("%d of %d notices came", len(seen), count)
	}
	wait(t, a, count)
}
