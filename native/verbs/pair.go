// SPDX-License-Identifier: MIT

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"
)

// NewQP makes a reliable connected queue pair. It returns the pair's number and the granted limits,
// which are at least the requested ones.
func (p PD) NewQP(in QPInit) (q QP, num uint32, got QPInit, err error) {
	for _, n := range []int{in.SendWR, in.RecvWR, in.SendSGE, in.RecvSGE, in.Inline} {
		if n < 0 || int64(n) > int64(^uint32(0)) {
			return 0, 0, in, fmt.Errorf("create a queue pair of %d: %w", n, syscall.EINVAL)
		}
	}
	c := C.struct_vb_qp_init{
		send_cq: C.uint64_t(in.SendCQ), recv_cq: C.uint64_t(in.RecvCQ),
		send_wr: C.uint32_t(in.SendWR), recv_wr: C.uint32_t(in.RecvWR),
		send_sge: C.uint32_t(in.SendSGE), recv_sge: C.uint32_t(in.RecvSGE), inline_data: C.uint32_t(in.Inline),
	}
	if in.SigAll {
		c.sig_all = 1
	}
	var qp C.uint64_t
	var number C.uint32_t
	rc := C.vb_create_qp(C.uint64_t(p), &c, &qp, &number)
	if err := check(rc, "create a queue pair of %d sends and %d receives, of %d and %d SGEs, %d bytes inline",
		in.SendWR, in.RecvWR, in.SendSGE, in.RecvSGE, in.Inline); err != nil {
		return 0, 0, in, err
	}
	got = in
	got.SendWR, got.RecvWR = int(c.send_wr), int(c.recv_wr)
	got.SendSGE, got.RecvSGE, got.Inline = int(c.send_sge), int(c.recv_sge), int(c.inline_data)
	return QP(qp), uint32(number), got, nil
}

// Init moves a new queue pair, or one after Reset, to StateInit. Receives may be posted from then
// on. AccessRelaxedOrdering applies to regions only and is ignored here.
func (q QP) Init(port int, access Access) error {
	return check(C.vb_qp_init(q.c(), C.int(port), C.uint32_t(access&^AccessRelaxedOrdering)), "init queue pair %d on port %d", q.num(), port)
}

// RTR connects the queue pair to its peer. From then on it receives, and responds to reads. Errors
// include those of the path: ENETUNREACH, ETIMEDOUT.
func (q QP) RTR(r RTR) error {
	if r.Global && (r.GIDIndex < 0 || r.GIDIndex > 255) {
		return fmt.Errorf("connect queue pair %d by GID %d: %w", q.num(), r.GIDIndex, syscall.EINVAL)
	}
	c := C.struct_vb_rtr{
		mtu: C.uint32_t(r.MTU), dest_qp: C.uint32_t(r.DestQP), psn: C.uint32_t(r.PSN), port: C.uint32_t(r.Port), gid_index: C.uint32_t(r.GIDIndex),
		lid: C.uint16_t(r.LID), sl: C.uint8_t(r.SL), traffic_class: C.uint8_t(r.TrafficClass), hop_limit: C.uint8_t(r.HopLimit),
		max_dest_rd_atomic: C.uint8_t(r.MaxDestRdAtomic), min_rnr_timer: C.uint8_t(r.MinRNRTimer),
	}
	if r.Global {
		c.global = 1
	}
	for i, b := range r.GID {
		c.gid[i] = C.uint8_t(b)
	}
	return check(C.vb_qp_rtr(q.c(), &c), "connect queue pair %d to %d of %x, MTU %d, GID %d", q.num(), r.DestQP, r.GID, r.MTU, r.GIDIndex)
}

// RTS lets a queue pair send after RTR.
func (q QP) RTS(r RTS) error {
	c := C.struct_vb_rts{
		psn: C.uint32_t(r.PSN), timeout: C.uint8_t(r.Timeout), retries: C.uint8_t(r.Retries),
		rnr_retries: C.uint8_t(r.RNRRetries), max_rd_atomic: C.uint8_t(r.MaxRdAtomic),
	}
	return check(C.vb_qp_rts(q.c(), &c), "set queue pair %d ready to send", q.num())
}

// Fail moves the queue pair to StateErr. All current and later work requests end with
// StatusFlushed.
func (q QP) Fail() error {
	return check(C.vb_qp_to(q.c(), C.int(StateErr)), "set queue pair %d to the error state", q.num())
}

// Reset moves the queue pair to StateReset and drops its work requests without completions.
func (q QP) Reset() error {
	return check(C.vb_qp_to(q.c(), C.int(StateReset)), "reset queue pair %d", q.num())
}

// State returns the queue pair's state.
func (q QP) State() (State, error) {
	var s C.int
	if err := check(C.vb_qp_state(q.c(), &s), "query queue pair %d", q.num()); err != nil {
		return 0, err
	}
	return State(s), nil
}

// Close destroys the queue pair, and drops its completions that were not polled.
func (q QP) Close() error {
	num := q.num()
	return check(C.vb_destroy_qp(q.c()), "destroy queue pair %d", num)
}

func (q QP) c() C.uint64_t { return C.uint64_t(q) }
func (q QP) num() uint32   { return uint32(C.vb_qp_num(q.c())) }
