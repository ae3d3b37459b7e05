// SPDX-License-Identifier: MIT

package gpu

import (
	"mori/core/device"
	"mori/core/memory"
)

// Notice of native/include/mori/ep/op.hpp: offsets, and the values of its word fault.
const (
	noticeAddress    = 0
	noticeExpected   = 8
	noticeSeen       = 16
	noticePeer       = 28
	noticeReady      = 36
	noticeFault      = 40
	noticeRows       = 44
	noticeOverflowed = 48
	noticeOverflow   = 56
	noticeAbort      = 68
	noticeBytes      = 72

	faultTimeout  = 1
	faultMismatch = 2
	faultCounts   = 3
	faultRows     = 5
	faultNetwork  = 6
	faultAborted  = 7
)

const (
	answerAt  = 96 // behind Notice: a word that Rows copies to
	hostBytes = 128
)

// A notice is host memory to which the kernels of this rank report, and a word that aborts them.
type notice struct{ mem *device.HostMemory }

func (n *notice) allocate(dev *device.Device) (err error) {
	if n.mem, err = dev.AllocHost(hostBytes); err != nil {
		return err
	}
	clear(memory.Bytes(n.mem.Addr(), hostBytes))
	return nil
}

func (n *notice) free() error {
	if n.mem == nil {
		return nil
	}
	return n.mem.Close()
}

func (n *notice) word32(off uint64) uint32 { return memory.Load32(n.mem.Addr() + off) }
func (n *notice) word64(off uint64) uint64 { return memory.Load64(n.mem.Addr() + off) }

// deviceAddr returns the address of the notice for kernels.
func (n *notice) deviceAddr() uint64 { return n.mem.DeviceAddr() }

// answer returns the address of the word that Rows copies to.
func (n *notice) answer() uint64 { return n.mem.Addr() + answerAt }

// clear removes all reports and the abort.
func (n *notice) clear() { clear(memory.Bytes(n.mem.Addr(), noticeBytes)) }

// abort ends the waits of all kernels that run now or begin later.
func (n *notice) abort() { memory.Store32(n.mem.Addr()+noticeAbort, 1) }

func (n *notice) aborting() bool { return n.word32(noticeAbort) != 0 }
