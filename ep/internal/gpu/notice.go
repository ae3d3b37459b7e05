// SPDX-License-Identifier: MIT

package gpu

import (
	"sync/atomic"

	"mori/core/device"
	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/native/abi"
)

// answerAt is the offset, behind Notice, of a word that Rows copies to.
const answerAt = abi.EPNoticeBytes

// A notice is host memory to which the kernels of this rank report, and a word that aborts them.
type notice struct {
	mem *device.HostMemory
	*abi.EPNotice
}

func (n *notice) allocate(dev *device.Device) (err error) {
	if n.mem, err = dev.AllocHost(answerAt + plan.Int32Bytes); err != nil {
		return err
	}
	n.EPNotice = &memory.Slice[abi.EPNotice](n.mem.Addr(), 1)[0]
	n.clear()
	return nil
}

func (n *notice) free() error {
	if n.mem == nil {
		return nil
	}
	return n.mem.Close()
}

// fault returns what a kernel reported, or abi.EPFaultNone.
func (n *notice) fault() abi.EPFault {
	return abi.EPFault(atomic.LoadUint32((*uint32)(&n.Fault)))
}

// deviceAddr returns the address of the notice for kernels.
func (n *notice) deviceAddr() uint64 { return n.mem.DeviceAddr() }

// answerAddr returns the address of the word that Rows copies to.
func (n *notice) answerAddr() uint64 { return n.mem.Addr() + answerAt }

// answer returns what Rows copied.
func (n *notice) answer() uint32 { return memory.Load32(n.answerAddr()) }

// clear removes all reports and the abort.
func (n *notice) clear() { *n.EPNotice = abi.EPNotice{} }

// abort ends the waits of all kernels that run now or begin later.
func (n *notice) abort() { atomic.StoreUint32(&n.Abort, 1) }

func (n *notice) aborting() bool { return atomic.LoadUint32(&n.Abort) != 0 }
