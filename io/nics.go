// SPDX-License-Identifier: MIT

package io

import (
	"mori/core"
	"mori/core/config"
	"mori/core/device"
)

// nicEnv is what only the environment says of RDMA devices.
type nicEnv struct {
	sl, tc   int // -1: not set
	inline   int // 0: the provider's; -1: none
	recvs    int // 0: notif_per_qp
	noEvents bool
}

// read takes the present values. warn is told of malformed ones, which are ignored.
func (n *nicEnv) read(warn func(error)) {
	for _, v := range []struct {
		name        string
		to          *int
		def, lo, hi int
	}{
		{config.IOSL, &n.sl, -1, 0, 15}, {config.IOTC, &n.tc, -1, 0, 255},
		{config.IOQPMaxInlineData, &n.inline, -1, 0, 1 << 16}, {config.IOQPMaxRecvWR, &n.recvs, 0, 1, 1 << 16},
	} {
		var err error
		*v.to, err = config.Int(v.name, v.def, v.lo, v.hi)
		warn(err)
	}
	switch n.inline {
	case -1:
		n.inline = 0
	case 0:
		n.inline = -1
	}
	if off, err := config.StrictFlag(config.IOTCDisable, false); off {
		n.tc = 0
	} else {
		warn(err)
	}
	events, err := config.StrictFlag(config.IOAsyncEvents, true)
	warn(err)
	n.noEvents = !events
}

// nicUse is how a backend with this config uses RDMA devices.
func (c *BackendConfig) nicUse() core.NICUse {
	use := core.AnyNIC()
	use.NICs, use.QPs, use.Polling = c.NumNICsPerTransfer, c.QPPerTransfer, c.PollCqMode == PollPolling
	use.SendWR, use.SendSGE, use.CQE, use.PostBatch = c.MaxSendWR, c.MaxMsgSGE, c.MaxCQENum, c.PostBatchSize
	use.SL, use.TC, use.Inline, use.NoEvents = c.nics.sl, c.nics.tc, c.nics.inline, c.nics.noEvents
	switch {
	case !c.EnableNotification:
		use.RecvWR = 1
	case c.nics.recvs > 0:
		use.RecvWR = c.nics.recvs
	default:
		use.RecvWR = c.NotifPerQP
	}
	return use
}

// nicUse is how the engine's RDMA backend uses RDMA devices, for the memory that is registered by
// now. Transports ask when they open.
func (e *Engine) nicUse() core.NICUse {
	use := core.AnyNIC()
	if c := e.rdma.Load(); c != nil {
		use = c.nicUse()
	}
	use.GPU, use.NUMA = e.memoryAt()
	return use
}

// memoryAt is the GPU that the registered memory is on, or the host's NUMA node; where nothing is
// registered yet, the GPU that is current on this thread. Of memory in several places nothing is
// said.
func (e *Engine) memoryAt() (gpu string, node int) {
	all := e.store.allRegions()
	if len(all) == 0 {
		if d, err := device.Current(); err == nil && d != nil {
			return d.BusID, -1
		}
		return "", -1
	}
	gpu, node = all[0].desc.DeviceBusID, all[0].desc.NUMANode
	for _, r := range all[1:] {
		if r.desc.DeviceBusID != gpu {
			gpu = ""
		}
		if r.desc.NUMANode != node {
			node = -1
		}
	}
	return gpu, node
}
