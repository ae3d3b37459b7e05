// SPDX-License-Identifier: MIT

package gpunic

import (
	"errors"
	"fmt"
	"strings"

	"mori/core/gpunic/bnxt"
	"mori/core/gpunic/ionic"
	"mori/core/gpunic/mlx5"
	"mori/native/abi"
)

// A family is what the host must know about the queues of one vendor's NICs.
type family struct {
	name     string // after the colon in an emulated NIC's name
	module   string // the file of its kernels, without suffix
	provider abi.NICProvider
	emulated string // emu.Options.Family

	// blocksLog returns the log2 of the number of 64-byte blocks in the memory of 1<<log entries.
	blocksLog func(log uint32) uint32

	// annex returns the additional data that kernels need about a queue whose ring begins at view.SQ.
	// nil if kernels need none.
	annex func(q *mlx5.Queue, view *abi.NICQueue) abi.NICAnnex
}

var families = []family{
	{name: "mlx5", module: "nic_mlx5", provider: abi.NICProviderMLX5, blocksLog: sameLog},
	{name: "bnxt", module: "nic_bnxt", provider: abi.NICProviderBnxt, emulated: "bnxt", annex: bnxtAnnex,
		// An entry takes two blocks. The table of packet numbers after the ring uses the rest of four.
		blocksLog: func(log uint32) uint32 { return log + 2 }},
	{name: "ionic1", module: "nic_ionic", provider: abi.NICProviderIonic, emulated: "ionic1", annex: ionicAnnex(ionic.Version1), blocksLog: sameLog},
	{name: "ionic2", module: "nic_ionic", provider: abi.NICProviderIonic, emulated: "ionic2", annex: ionicAnnex(ionic.Version2), blocksLog: sameLog},
}

func sameLog(log uint32) uint32 { return log }

func bnxtAnnex(q *mlx5.Queue, view *abi.NICQueue) abi.NICAnnex {
	return abi.NICAnnex{
		CQN: q.CQN(), Spare: 1, Version: 1, MSN: view.SQ + bnxt.EntryBytes<<view.SQLog, PSN: uint64(q.End().PSN),
	}
}

func ionicAnnex(v ionic.Version) func(*mlx5.Queue, *abi.NICQueue) abi.NICAnnex {
	return func(q *mlx5.Queue, _ *abi.NICQueue) abi.NICAnnex {
		return abi.NICAnnex{CQN: q.CQN(), Spare: 1, Version: uint32(v)}
	}
}

// KernelModule returns the name of the compiled kernels that drive queues of the named device. It
// returns an error for names that Open rejects because of their form.
func KernelModule(device string) (string, error) {
	_, f, _, err := parseName(device)
	if err != nil {
		return "", err
	}
	return f.module, nil
}

// parseName splits a device name into the name to open and its family. Names of emulated NICs begin
// with "emu"; a colon precedes their family, which is mlx5 if it is left out.
func parseName(name string) (device string, f *family, emulated bool, err error) {
	device, kind, has := strings.Cut(name, ":")
	if !strings.HasPrefix(device, "emu") {
		for _, vendor := range []string{"bnxt_re", "ionic"} {
			if strings.HasPrefix(device, vendor) {
				return "", nil, false, fmt.Errorf(
					"open device %s: mori cannot create queues for kernels on %s hardware, only on an emulated NIC: %w",
					name, vendor, errors.ErrUnsupported)
			}
		}
		return name, &families[0], false, nil
	}
	if !has {
		return device, &families[0], true, nil
	}
	names := make([]string, len(families))
	for i := range families {
		if families[i].name == kind {
			return device, &families[i], true, nil
		}
		names[i] = families[i].name
	}
	return "", nil, true, fmt.Errorf("open device %s: family %q, want one of %s: %w",
		name, kind, strings.Join(names, ", "), mlx5.ErrArgument)
}
