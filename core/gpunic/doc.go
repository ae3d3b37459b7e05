// SPDX-License-Identifier: MIT

// Package gpunic opens NICs whose queues GPU kernels drive. It hides the vendor: callers see a NIC,
// its queues, and the bytes that describe a queue to the kernels.
//
//	nic, err := gpunic.Open("mlx5_0", env) // or "emu0", "emu0:bnxt", "emu0:ionic1", "emu0:ionic2"
//	memory, err := nic.Register(addr, n, mlx5.AccessAll)
//	queue, err := nic.NewQueue(gpunic.QueueConfig{Log: 8})
//	err = queue.Connect(peerEnd)           // queue.End() of the peer; the caller carries it here
//	view := queue.View()                   // bytes for the kernels: mori::nic::Queue
//	err = nic.Close()                      // closes queues and regions, too
//
// Each vendor has a folder with its queue formats: mlx5 (ConnectX), bnxt (Broadcom) and ionic (AMD
// Pensando). Each has one row in the table of families.go.
//
// mlx5 commands make and connect queues: on a ConnectX NIC through libmlx5 (package mlx5/dv), on
// the emulated NIC (package emu) directly. The emulated NIC also reads and writes bnxt and ionic
// queues, so kernels of all three vendors run without hardware. mori cannot create queues on bnxt
// and ionic hardware yet: Open returns an error for such devices.
//
// Only one goroutine may use a NIC at a time. The memory of a queue or region belongs to the
// Environment or the caller, and must stay mapped until Close has returned. Errors wrap those of
// package mlx5, or errors.ErrUnsupported.
package gpunic
