// SPDX-License-Identifier: MIT

package gpunic

import (
	"errors"
	"testing"

	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
	"mori/native/abi"
)

// hostEnvironment is an Environment whose kernels run on the CPU. It counts what is not freed.
type hostEnvironment struct{ open int }

func (e *hostEnvironment) Words(n uint64) (addr uint64, free func() error, err error) {
	b, err := sys.Alloc(int(n))
	if err != nil {
		return 0, nil, err
	}
	e.open++
	return sys.AddrOf(b), func() error { e.open--; return sys.Free(b) }, nil
}

func (e *hostEnvironment) Window(addr, n uint64) (Window, error) { return nil, nil }

func TestKernelModuleOfDevice(t *testing.T) {
	for device, want := range map[string]string{
		"mlx5_0": "nic_mlx5", "emu0": "nic_mlx5", "emu1:mlx5": "nic_mlx5", "emu0:bnxt": "nic_bnxt",
		"emu0:ionic1": "nic_ionic", "emu0:ionic2": "nic_ionic",
	} {
		if got, err := KernelModule(device); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", device, got, err, want)
		}
	}
	for device, want := range map[string]error{
		"emu0:": mlx5.ErrArgument, "emu0:mlx4": mlx5.ErrArgument, "bnxt_re0": errors.ErrUnsupported, "ionic_0": errors.ErrUnsupported,
	} {
		if got, err := KernelModule(device); !errors.Is(err, want) {
			t.Errorf("%s: %q, %v, want %v", device, got, err, want)
		}
	}
}

// TestQueuesOfEachFamily checks the view that kernels get, and that Close frees all memory.
func TestQueuesOfEachFamily(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			env := &hostEnvironment{}
			n, err := Open("emu0:"+f.name, env)
			if err != nil {
				t.Fatal(err)
			}
			q, err := n.NewQueue(QueueConfig{Log: 3})
			if err != nil {
				t.Fatal(errors.Join(err, n.Close()))
			}
			if err := q.Connect(q.End()); err != nil {
				t.Error(err)
			}
			if err := q.Connect(q.End()[1:]); !errors.Is(err, mlx5.ErrFormat) {
				t.Errorf("connect to an end that is cut short: %v", err)
			}
			var view abi.NICQueue
			b := q.View()
			copy(abi.Bytes(&view), b)
			if view.SQLog != 3 || view.Provider != uint32(f.provider) || view.QPN != q.QPN() {
				t.Errorf("view %+v", view)
			}
			if want := f.annex != nil; len(b) > abi.NICQueueBytes != want {
				t.Errorf("a view of %d bytes", len(b))
			}
			_, err = n.NewQueue(QueueConfig{Log: 3, ReceivesLog: 2})
			if want := f.annex != nil; errors.Is(err, errors.ErrUnsupported) != want {
				t.Errorf("a receive queue: %v", err)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
			if env.open != 0 {
				t.Errorf("%d blocks of memory were not freed", env.open)
			}
		})
	}
}
