// SPDX-License-Identifier: MIT

// Package gpunic opens NICs whose queues GPU kernels drive by themselves. It hides the vendor:
// callers see a NIC, its queues, and the bytes that describe a queue to the kernels.
//
//	nic, err := gpunic.Open("mlx5_0", env) // or "emu0", "emu0:bnxt", "emu0:ionic1", "emu0:ionic2"
//	memory, err := nic.Register(addr, n, mlx5.AccessAll)
//	queue, err := nic.NewQueue(gpunic.QueueConfig{Log: 8})
//	err = queue.Connect(peerEnd)           // queue.End() of the peer; the caller carries it here
//	view := queue.View()                   // bytes for the kernels: mori::nic::Queue
//	err = nic.Close()                      // closes queues and regions, too
//
// A vendor is a folder: mlx5 (ConnectX), bnxt (Broadcom) and ionic (AMD Pensando) each have the
// formats of their queues. Each has one line in the table of families.go.
//
// Queues are made and connected by mlx5 commands: on a ConnectX NIC through libmlx5 (package
// mlx5/dv), on the emulated NIC (package emu) directly. The emulated NIC also reads and writes bnxt
// and ionic queues, so kernels of all three vendors run without hardware. Host code that makes
// queues on bnxt and ionic hardware does not exist yet: Open refuses such devices and says so.
//
// A NIC is used by one goroutine at a time. Memory that a queue or a region lies in belongs to the
// Environment or the caller, and must stay mapped until Close has returned. Errors wrap those of
// package mlx5, or errors.ErrUnsupported.
package gpunic
