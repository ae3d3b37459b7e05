// SPDX-License-Identifier: MIT

package core

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"

	"mori/core/config"
	rdma "mori/core/provider/verbs"
	"mori/core/provider/verbs/nics"
	"mori/core/topology"
)

// A NICUse is how a program wants its RDMA devices used. What is 0 or less is left to the devices'
// provider, but for what the fields say.
type NICUse struct {
	GPU  string // PCI address of the GPU whose memory is moved, "" for memory of the host
	NUMA int    // node of the host's memory, -1 = not known

	NICs    int  // that share a transfer
	QPs     int  // queue pairs on each
	Polling bool // look at completions all the time while there is work, rather than sleep

	SendWR    int // work requests under way on a queue pair
	SendSGE   int // local pieces of one
	RecvWR    int // receives of a queue pair
	CQE       int // entries of a completion queue
	PostBatch int // work requests that are posted at once
	Inline    int // bytes of a write that need no registered memory; -1: none

	SL, TC   int  // service level and traffic class; -1: what MORI_RDMA_SL and MORI_RDMA_TC say
	NoEvents bool // do not watch the devices' events
}

// AnyNIC is the use of who has no wishes.
func AnyNIC() NICUse { return NICUse{NUMA: -1, SL: -1, TC: -1} }

// What a connection can have; see verbs.Settings. More is cut.
const (
	mostNICs, mostQPs       = 8, 16
	mostSendWR, mostRecvWR  = 1 << 16, 1 << 15
	mostSendSGE, mostInline = 64, 4096
)

// settings turns wishes, the environment and what the host has into settings of the provider.
// Malformed variables are logged and ignored. The error says why no device can be used.
func (u NICUse) settings(log *oneTime) (rdma.Settings, error) {
	number := func(name string, def, lo, hi int) int {
		n, err := config.Int(name, def, lo, hi)
		log.ignored(err)
		return n
	}
	s := rdma.Settings{
		Rails: least(u.NICs, mostNICs), QPs: least(u.QPs, mostQPs), Polling: u.Polling,
		SendWR: least(u.SendWR, mostSendWR), SendSGE: least(u.SendSGE, mostSendSGE), RecvWR: least(u.RecvWR, mostRecvWR), CQE: max(0, u.CQE),
		PostBatch: max(0, u.PostBatch), Inline: min(u.Inline, mostInline), NoEvents: u.NoEvents,
		GIDIndex: number(config.IBGIDIndex, -1, 0, 1<<16), Relaxed: config.Flag(config.IBRelaxedOrdering, false),
		DMABuf: config.Flag(config.EnableDMABufReg, false),
		SL:     uint8(number(config.RDMASL, 0, 0, 15)), TrafficClass: uint8(number(config.RDMATC, 0, 0, 255)),
	}
	if u.SL >= 0 {
		s.SL = uint8(u.SL)
	}
	if u.TC >= 0 {
		s.TrafficClass = uint8(u.TC)
	}
	mtu, err := pathMTU()
	log.ignored(err)
	s.MTU = mtu
	choice, err := nics.Choice()
	log.ignored(err)
	s.Affinity = choice.Affinity
	err = u.pick(&s, choice, log)
	return s, err
}

// oneTime logs each thing once, however often it is asked.
type oneTime struct {
	log  *slog.Logger // nil: slog.Default()
	told sync.Map
}

func (o *oneTime) first(what string) *slog.Logger {
	if _, again := o.told.LoadOrStore(what, true); again {
		return nil
	}
	return cmp.Or(o.log, slog.Default())
}

func (o *oneTime) ignored(err error) {
	if err == nil {
		return
	}
	if log := o.first(err.Error()); log != nil {
		log.Warn("environment variable ignored", "error", err)
	}
}

func (o *oneTime) picked(device string, index int, why string) {
	if log := o.first(device + why); log != nil {
		log.Info("RDMA device chosen", "device", device, "index", index, "why", why)
	}
}

func least(n, most int) int { return max(0, min(n, most)) }

// pathMTU is 0 where the port's is taken.
func pathMTU() (int, error) {
	n, err := config.Int(config.IBPathMTU, 0, 256, 4096)
	if err == nil && n != 0 && n&(n-1) != 0 {
		return 0, fmt.Errorf("%s=%d: want 256, 512, 1024, 2048 or 4096", config.IBPathMTU, n)
	}
	return n, err
}

// spareNICs are opened beside those that connections use: one of them takes the place of a device
// whose port is down.
const spareNICs = 1

// pick chooses the devices, the best first.
func (u NICUse) pick(s *rdma.Settings, choice topology.Choice, log *oneTime) error {
	near := topology.OnNode(u.NUMA)
	if u.GPU != "" {
		near = topology.AtGPU(u.GPU)
	}
	h, library := nics.Host()
	if err := nics.Unusable(h, library); err != nil {
		return err
	}
	picks, err := h.NICsFor(near, cmp.Or(s.Rails, 1)+spareNICs, choice)
	if err != nil {
		return err
	}
	for _, p := range picks {
		name := fmt.Sprintf("%s:%d", p.Device, p.Port)
		s.Devices, s.Indices, s.Why = append(s.Devices, name), append(s.Indices, p.Index), append(s.Why, p.Why)
		log.picked(name, p.Index, p.Why)
	}
	return nil
}
