// SPDX-License-Identifier: MIT

// Package mlx5 speaks to ConnectX NICs in their own formats, so that a GPU can post work to them by
// itself: the entries of their queues, and the commands that make queues and connect them.
//
//	cmd, err := dv.Open("mlx5_0") // package mlx5/dv; or emu.New of package emu without such a NIC
//	dev, err := mlx5.Open(cmd)    // dev.Close closes cmd, too
//	region, err := dev.Register(addr, n, mlx5.AccessAll)
//	queue, err := dev.NewQueue(mlx5.QueueConfig{SQLog: 8})
//	err = queue.Connect(end, mlx5.PathConfig{}) // queue.End() of the peer
//
// After that the queue's rings belong to the poster: device code with queue.View()
// (mori/nic/queue.hpp has the same struct), or mlx5test.Poster. Queues and regions are closed
// before their device; the poster stops before its queue is closed, and memory is kept until its
// region is closed.
//
// [Encode] and [Decode] are for the commands' bytes, [Entry], [CQE] and the segments for those of
// queues. Nothing here touches a NIC but by a [Cmd], and all of it is plain Go.
//
// Errors wrap [ErrFormat] for bytes that no NIC writes, [ErrArgument] for what is out of its
// limits, [ErrClosed], or are a *[CommandError]: the NIC's answer that it refuses. A completion
// that is an error is a *[WorkError] with a [Syndrome].
package mlx5
