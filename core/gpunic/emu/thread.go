// SPDX-License-Identifier: MIT

package emu

import (
	"runtime"
	"time"

	"mori/core/internal/sys/thread"
)

// How the thread waits. It polls without a pause while there is work, and for some time after,
// since posters that wait for a completion post again soon. Then it naps, longer the longer it is
// idle. Doorbells are words of memory, so only packets and commands can wake it.
const (
	eager    = 50 * time.Microsecond
	drowsy   = 5 * time.Millisecond
	shortNap = 20 * time.Microsecond
	longNap  = 500 * time.Microsecond
	sleep    = 5 * time.Millisecond // idle for a second
)

// run is the NIC's thread.
func (n *NIC) run() {
	defer close(n.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	last := time.Now()
	for {
		select {
		case <-n.stop:
			return
		default:
		}
		n.mu.Lock()
		now := time.Now()
		busy := n.step(now)
		idle := len(n.firmware.order) == 0
		n.mu.Unlock()
		if busy {
			last = now
			continue
		}
		n.rest(now.Sub(last), idle)
	}
}

// rest waits. since is the idle time; quiet means that there is no queue pair.
func (n *NIC) rest(since time.Duration, quiet bool) {
	switch {
	case quiet:
		select {
		case <-n.port.wake:
		case <-n.stop:
		}
	case since < eager:
		thread.Yield()
	case since < drowsy:
		thread.Nap(shortNap)
	case since < time.Second:
		thread.Nap(longNap)
	default:
		select {
		case <-n.port.wake:
		case <-n.stop:
		case <-time.After(sleep):
		}
	}
}

// step executes one round and reports whether there was any work.
func (n *NIC) step(now time.Time) (busy bool) {
	n.common.round++
	packets := n.port.receive()
	for i := range packets {
		n.firmware.dispatch(&packets[i])
	}
	busy = len(packets) > 0 || len(n.port.held) > 0
	for _, q := range n.firmware.order {
		if bell := q.ring.uar.take(); bell != 0 {
			busy = true
			n.firmware.rung(q, bell)
		}
		busy = q.step(now) || busy
	}
	for _, c := range n.firmware.cqs {
		busy = c.drain() || busy
	}
	return busy
}
