// SPDX-License-Identifier: MIT

// Package nics opens NICs that kernels drive, by their names: those of the host (package dv), and the emulated one (package emu), whose names
// begin with "emu".
package nics

import (
	"fmt"
	"strings"

	"mori/core/mlx5"
	"mori/core/mlx5/dv"
	"mori/core/mlx5/emu"
)

// Open opens a NIC. Of an emulated one, which emulated is then, doorbells makes the memory that is rung in, as emu.Options.UAR says: kernels must
// reach it. Others of this host find it by a socket.
func Open(name string, doorbells func(n int) (addr uint64, free func() error, err error)) (cmd mlx5.Cmd, emulated *emu.NIC, err error) {
	if !strings.HasPrefix(name, "emu") {
		nic, err := dv.Open(name)
		if err != nil {
			return nil, nil, fmt.Errorf("open device %s: %w", name, err)
		}
		return nic, nil, nil
	}
	nic, err := emu.New(emu.Options{Name: name, Wire: "unix", UAR: doorbells})
	if err != nil {
		return nil, nil, fmt.Errorf("open device %s: %w", name, err)
	}
	return nic, nic, nil
}

// Path is how a queue is connected, to a peer of the same kind of NIC.
func Path(emulated *emu.NIC) (p mlx5.PathConfig) {
	if emulated != nil {
		// 2.1 s for an answer, 8 times. An emulated NIC loses nothing, but its threads wait for a core: with about 20 threads that wanted one of 2
		// the usual 0.27 s were once not enough, in a hundred thousand rounds of package interchange.
		p.AckTimeout = 19
	}
	return p
}
