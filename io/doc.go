// SPDX-License-Identifier: MIT

// Package io moves blocks of memory, such as KV-cache blocks, between processes and hosts.
//
//	e, err := io.NewEngine("prefill-0", io.EngineConfig{Host: "10.0.0.1"})
//	err = e.CreateBackend(io.BackendRDMA, nil)      // binds; e.Desc().Port is real from now on
//	local, err := e.RegisterMemory(addr, size, -1, io.LocCPU)
//	... exchange e.Desc().Pack() and local.Pack() with the peer by any means ...
//	err = e.RegisterRemoteEngine(peerDesc)
//	s, err := e.CreateSession(local, remote)        // s == nil: no backend serves this pair
//	st := s.Write([]uint64{0}, []uint64{4096}, []uint64{512}, e.AllocateTransferUID())
//	code := st.Wait(ctx)
//
// # What happens to a transfer
//
//   - Session.Submit checks every entry against both regions and accepts all of them or none.
//   - Package batch merges entries that are contiguous on both sides and splits the rest into ops.
//   - The ledger of the path counts the pending ops (package transfer). The transfer finishes when
//     its last op has ended.
//   - Its status becomes SUCCESS when all transfers that this engine submitted earlier to the same
//     peer have finished too (transfer.Order). Failures are reported immediately, out of order.
//   - Every transfer has a deadline, which the engine's clock checks (clock.go).
//
// When a path breaks, its unfinished ops are replayed on the next path (package peer).
//
// The engine does not replay ops that the target refuses (key, right, bounds). A transfer waits for
// a path until its deadline, or until the control plane finds that the peer's process has ended or
// restarted.
//
// # Paths
//
// A pair of regions uses the first backend that can serve it: XGMI, FABRIC, RDMA, TCP (package
// backend). A backend has one route for pairs of host memory, and one for pairs with GPU memory at
// one end or both. A route lists transports in the order of core.Transports. A peer is reached
// through the first one that works:
//
// 1. copies by GPUs and shared memory on the same host
// 2. RDMA devices
// 3. TCP
//
// The first use opens a path through the control plane, which knows where the peer listens.
// Engine.Describe and Session.Describe return the path, why it was chosen, and why each better one
// was not. A transport that broke moves to the end of the order for a while. The engine retries it
// with exponential back-off and moves new transfers back to it once it works. The engine closes a
// path that was not used for five minutes. The next transfer opens a new one.
//
// # GPUs
//
// Regions know the device that they are on (package region). Segments in GPU memory carry the
// descriptor that the path's transport registered. Request.After delays a transfer until a GPU
// event or stream has reached a point (after.go). Such a transfer is parked, like one that waits
// for a path, and keeps its place in the order. An engine whose only backend is XGMI listens on no
// network.
//
// # Observation
//
// Every transfer is counted by peer, path and operation. The engine keeps the last 4096 transfers
// with the times of their stages (meter.Recorder). Engine.Stats returns the counters
// and the slow transfers, Engine.WriteTrace the records. With MORI_METRICS_PORT set, an HTTP server
// shows all engines of the process (process.go). With MORI_TRACE_DIR set, a trace is also written
// when a transfer misses its deadline. A tag, such as the id of a request, appears in all of these.
// The control plane also sends it to the peer.
//
// # Ownership
//
// The caller owns registered memory and must keep it mapped until DeregisterMemory returns. A
// Status is valid for as long as the caller holds it, even after its engine was closed.
// Engine.Close ends all transfers and waits until none of them can write to this process any more.
//
// # Errors
//
// Transfers do not return Go errors. Their Status fails, with a text that has peer, path, bytes and
// cause. Every other error wraps one of the Err variables.
//
// # Internal packages
//
// The public types delegate to the packages of io/internal. docs/design/ARCHITECTURE.md lists them
// in dependency order. None of them imports Engine, Session or Status.
package io
