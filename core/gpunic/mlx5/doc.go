// SPDX-License-Identifier: MIT

// Package mlx5 implements the formats of ConnectX NICs that a GPU needs to post work itself: the
// entries of queues, and the commands that make and connect queues.
//
//	cmd, err := dv.Open("mlx5_0") // package mlx5/dv; or emu.New of package emu without such a NIC
//	dev, err := mlx5.Open(cmd)    // dev.Close closes cmd, too
//	region, err := dev.Register(addr, n, mlx5.AccessAll)
//	queue, err := dev.NewQueue(mlx5.QueueConfig{SQLog: 8})
//	err = queue.Connect(end, mlx5.PathConfig{}) // queue.End() of the peer
//
// After that the queue's rings belong to the poster: device code with queue.View()
// (mori/nic/queue.hpp has the same struct), or mlx5test.Poster. Close queues and regions before
// their device. Stop the poster before closing its queue, and keep memory until its region is
// closed.
//
// [Encode] and [Decode] convert commands, [Entry], [CQE] and the segments the data of queues. Only
// a [Cmd] accesses a NIC. Everything else is plain Go.
//
// Errors wrap [ErrFormat] for bytes that no NIC writes, [ErrArgument] for values outside the
// limits, or [ErrClosed]. If the NIC refuses a command, the error is a *[CommandError]. The error
// of a failed completion is a *[WorkError] with a [Syndrome].
package mlx5
