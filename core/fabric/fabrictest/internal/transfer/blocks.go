// SPDX-License-Identifier: MIT

package transfer

import (
	"errors"
	"math/rand/v2"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// DeviceBlocks moves blocks of one size with gaps between them in random order, which a provider
// that takes none refuses.
func DeviceBlocks(r *rig.Rig, near, far rig.Place) {
	const count, room = 300, 1 << 20
	a, b, src, dst, to := rig.Ends(r, near, far, room)
	random := rand.New(rand.NewPCG(3, 4))
	for round, size := range []int{1, 64, 1000, 3000} {
		var blocks fabric.Blocks
		n := min(count, room/size/2)
		r.Must(blocks.Set(uint64(size), places(random, n, size, room-17), places(random, n, size, room-33)))
		op := fabric.Op{Kind: fabric.OpWrite, Blocks: &blocks, Ctx: 3, Seg: src.Seg(17, room-17), RSeg: to.At(33, room-33)}
		if r.Info.Limits.BlockLimit < n {
			if _, err := a.Try(op); !errors.Is(err, fabric.ErrNotSupported) {
				r.Errorf("%d blocks, of which it takes %d: %v", n, r.Info.Limits.BlockLimit, err)
			}
			return
		}
		src.Fill(uint64(round + 4))
		dst.Fill(uint64(round + 40))
		if op.Flags = 0; round%2 == 1 {
			op.Flags, op.Data = fabric.OpRemoteData, uint64(round)
		}
		if c := a.Do(op); c.Len != blocks.Bytes() {
			r.Errorf("%d bytes were reported as %+v", blocks.Bytes(), c)
		}
		if round%2 == 1 {
			if c := b.OK(0); c.Kind != fabric.OpRemoteWrite || c.Data != uint64(round) {
				r.Errorf("the peer got %+v", c)
			}
		}
		for i, l := range blocks.Local() {
			copy(dst.Model[33+blocks.Remote()[i]:][:size], src.Model[17+l:])
		}
		dst.Check("%d blocks of %d bytes written", n, size)
		src.Fill(uint64(round + 60))
		a.Do(fabric.Op{Kind: fabric.OpRead, Blocks: &blocks, Ctx: 4, Seg: op.Seg, RSeg: op.RSeg})
		for i, l := range blocks.Local() {
			copy(src.Model[17+l:][:size], dst.Model[33+blocks.Remote()[i]:])
		}
		src.Check("%d blocks of %d bytes read", n, size)
		dst.Check("%d blocks of %d bytes read", n, size)
	}
	refusedBlocks(r, a, src, dst, to, room)
}

// places are n offsets of blocks of size bytes below end that do not overlap, in random order. Some
// blocks touch each other.
func places(random *rand.Rand, n, size, end int) []uint64 {
	slack := (end - n*size) / n
	all, at := make([]uint64, n), 0
	for i := range all {
		if slack > 0 && random.IntN(3) > 0 {
			at += random.IntN(slack)
		}
		all[i] = uint64(at)
		at += size
	}
	random.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// refusedBlocks submits what is no op, and blocks of which one is outside of the peer's region.
func refusedBlocks(r *rig.Rig, a *rig.Node, src, dst *rig.Stock, to rig.Target, room uint64) {
	var blocks fabric.Blocks
	r.Must(blocks.Set(64, []uint64{0, 640, 128}, []uint64{64, 0, 1024}))
	good := fabric.Op{Kind: fabric.OpWrite, Blocks: &blocks, Ctx: 5, Seg: src.Seg(0, 704), RSeg: to.At(0, 1088)}
	for what, change := range map[string]func(op *fabric.Op){
		"a block behind the local run":  func(op *fabric.Op) { op.Seg.Len-- },
		"a block behind the remote run": func(op *fabric.Op) { op.RSeg.Len-- },
		"segments beside blocks":        func(op *fabric.Op) { op.More = []fabric.Seg{op.Seg} },
		"remote segments beside blocks": func(op *fabric.Op) { op.RMore = []fabric.RSeg{op.RSeg} },
		"a send":                        func(op *fabric.Op) { op.Kind, op.RSeg = fabric.OpSend, fabric.RSeg{} },
		"no blocks":                     func(op *fabric.Op) { op.Blocks = new(fabric.Blocks) },
		"a run that is no memory":       func(op *fabric.Op) { op.Seg.Addr = 0 },
	} {
		op := good
		change(&op)
		if _, err := a.Try(op); !errors.Is(err, fabric.ErrInvalid) {
			r.Errorf("%s: %v", what, err)
		}
	}
	for _, at := range []uint64{room - 1087, room, 1<<64 - 1024} {
		for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
			op := good
			op.Kind, op.RSeg = kind, to.At(at, 1088)
			a.Refused(op, r.Denial(fabric.ErrRange)...)
			if r.DenialEnds() {
				return
			}
		}
	}
	src.Check("after what was refused")
	dst.Check("after what was refused")
}
