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
//   - Session.Submit checks every entry against both regions and takes all or nothing.
//   - Package batch merges entries that are contiguous on both sides and cuts the rest into ops.
//   - The ledger of the path counts the pending ops (package transfer). When the last one has
//     ended, the transfer is finished.
//   - Its status becomes SUCCESS when all transfers submitted before it, by this engine to the same
//     peer, are finished too (transfer.Order). Failures are reported immediately, out of order.
//   - Every transfer has a deadline, which the engine's clock checks (clock.go).
//
// When a path breaks, its unfinished ops are replayed on the next path (package peer).
//
// Ops that the target refuses (key, right, bounds) are not replayed. A transfer waits for a path
// until its deadline, or until the control plane finds that the peer's process has ended or was
// restarted.
//
// # Paths
//
// A pair of regions takes the first backend that can serve it: XGMI, FABRIC, RDMA, TCP (package
// backend). A backend has one route for pairs of host memory, and one for pairs with GPU memory
// at one end or both. A route is a list of transports in the order of core.Transports, and a peer
// is reached through the first one that works:
//
// 1. copies by GPUs and shared memory on the same host
// 2. RDMA devices
// 3. TCP
//
// The first use opens a path through the control plane, which knows what the peer listens on.
// Engine.Describe and Session.Describe return the path, why it was chosen, and why each better one
// was not. A transport that broke comes last in the order for a while. The engine retries it with
// exponential back-off and moves new transfers back to it when it works. A path that is not used
// for five minutes is closed, and the next transfer opens another.
//
// # GPUs
//
// Regions know the device that they are on (package region). Segments in GPU memory carry the
// descriptor of the registration with the path's transport. Request.After holds a transfer back
// until an event or a stream of a GPU has come so far (after.go). Such a transfer is parked like
// one that waits for a path, with its place in the order. An engine whose only backend is XGMI
// listens on no network.
//
// # Observation
//
// Every transfer is counted by peer, path and operation. The last 4096 are remembered with the
// times of their stages (meter.Recorder). Engine.Stats and Engine.WriteTrace return both. With
// MORI_METRICS_PORT an HTTP server shows all engines of the process (process.go). With
// MORI_TRACE_DIR set, a trace is also written when a transfer misses its deadline. A tag, such as
// the id of a request, goes with a transfer into all of these and, over the control plane, to the
// peer.
//
// # Ownership
//
// Registered memory stays the caller's and must stay mapped until DeregisterMemory returned. A
// Status is valid as long as the caller holds it, also after its engine was closed. Engine.Close
// ends everything and waits until no byte of any transfer can land on this side.
//
// # Errors
//
// Transfers never fail by a Go error: their Status does, with a text that has peer, path, bytes and
// cause. Everything else returns an error that wraps one of the Err variables.
//
// # Internal packages
//
// The public types delegate to the packages of io/internal. docs/design/ARCHITECTURE.md lists them
// in their order. None of them knows Engine, Session or Status.
package io
