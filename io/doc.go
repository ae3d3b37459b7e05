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
// Session.submit checks every entry against both regions and takes all or nothing. The plan merges
// entries that are contiguous on both sides and cuts the rest into ops (batch.go). The ledger of
// the path counts the ops still in flight (ledger.go). When the last one ended the transfer is
// finished; its status becomes SUCCESS when all transfers submitted before it, by this engine to
// the same peer, are finished too (order.go). A failed transfer is told at once. Every transfer has
// a deadline (deadline.go).
//
// When a path breaks, the ops that it did not bring to an end are replayed on the next one
// (replay.go): after this side has closed its end, so that nothing can land here, and the peer has
// confirmed over the control plane that it closed the other, so that nothing can land there behind
// a newer write. Bytes are moved from the same place to the same place, so twice is once; the
// notification of a uid sets one mark, so twice is once, too. What the target refuses (key, right,
// bounds) is not replayed. A transfer waits for a path until its deadline, or until the peer's
// control plane says that the process is gone or another one.
//
// # Paths
//
// A pair of regions takes the first backend that can serve it: XGMI, FABRIC, RDMA, TCP (route.go).
// A backend has a route for pairs of host memory and one for pairs with GPU memory at one end or
// both, each a list of transports in the order of core.Transports: copies by GPUs and shared memory
// on the same host, then RDMA devices (nics.go says how they are used), then TCP. A peer is reached
// through the first one that works; paths belong to a route. They are opened at first use through
// the slow control plane (control_server.go), which tells what the peer listens on. Engine.Describe
// and Session.Describe tell the path, why it was chosen and why each better one was not. A
// transport that broke comes last in the order for a while; the engine's clock tries it again, ever
// more seldom, and moves new transfers back to it when it works (health.go). A path that nobody
// used for five minutes is closed and opened again by the next transfer.
//
// # GPUs
//
// Regions know the device that they are on (place.go); segments in GPU memory carry the descriptor
// of the registration with the path's transport. Request.After holds a transfer back until an event
// or a stream of a GPU has come so far (after.go): it is parked like one that waits for a path,
// with its place in the order. An engine whose only backend is XGMI listens on no network.
//
// # Seeing it
//
// Every transfer is counted by peer, path and operation, and the last 4096 are remembered with the
// times of their stages (book.go). Engine.Stats and Engine.WriteTrace tell; with MORI_METRICS_PORT
// an HTTP server shows all engines of the process to Prometheus and to people (process.go). A
// transfer that fails by its deadline leaves a trace in MORI_TRACE_DIR. A tag, such as the id of a
// request, goes with a transfer into all of these and, over the control plane, to the peer
// (tags.go).
//
// # Ownership
//
// Registered memory stays the caller's and must stay mapped until DeregisterMemory returned. A
// Status is valid for as long as somebody holds it, also after its engine was closed. Engine.Close
// ends everything and waits until no byte of any transfer can land on this side.
//
// # Errors
//
// Transfers never fail by a Go error: their Status does, with a text that names peer, path, bytes
// and cause. Everything else returns an error that wraps one of the sentinels of errors.go.
package io
