// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/pathbase"
)

// A dataPath moves the payload of one endpoint's reads and writes if one end at least is GPU
// memory. It is a conn.DataPath. Its parts own their state:
//
//	ops      our reads and writes, from RMA to their completion (pending.go)
//	grants   regions of the peer that we may reach, and regions that the peer may reach (grants.go)
//	orders   ops of ours that the peer copies (orders.go)
//	server   orders of the peer that we copy (serve.go)
//	peer     the process at the other end, and the fences in front of both memories (handshake.go)
//	domain   the engine and the pins, which all data paths of a domain share (domain.go)
//
// RMA starts an op if all that it needs is known: the grant of the remote region, the region as the
// copying device sees it, and the pins of local host memory. Otherwise a goroutine waits for the
// peer and calls the drivers.
type dataPath struct {
	port   pathbase.Port
	log    *slog.Logger
	within time.Duration // how long to wait for a peer or a device
	peer   *peerProcess
	domain *domain
	member pathbase.Member
	slow   pathbase.SlowPath

	ops    ops
	grants grants
	orders orders
	server server
}

var _ conn.DataPath = (*dataPath)(nil)

func newDataPath(port pathbase.Port, peer *peerProcess, table *regions.Table, opts *Options) *dataPath {
	dp := &dataPath{port: port, peer: peer, log: opts.Log, within: opts.releaseWait}
	dp.slow.First = func(why error) {
		dp.log.Warn("p2p: GPU memory uses the socket, which is slower", "peer", port.Peer(), "why", why)
	}
	dp.ops.init(dp)
	dp.grants.init(dp, table)
	dp.orders.init(dp)
	dp.server.init(dp)
	dp.member = pathbase.Member{Path: dp, Conn: port, Given: &dp.grants.Given, Holds: dp.holds}
	return dp
}

// longList is the number of segments from which the caller does not build the list itself. 8192
// segments take 0.1 ms, including the copy into the list that the GPU reads. The GPU takes as long
// to copy 4 KiB for each. So the caller can submit the next op meanwhile.
const longList = 512

// RMA takes over an op; see conn.DataPath.
func (dp *dataPath) RMA(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) bool {
	if op.Seg.Len == 0 && op.Len() == 0 || op.Flags&fabric.OpInject != 0 {
		return false
	}
	o := dp.ops.add(t, op)
	if o == nil {
		return true
	}
	if max(len(op.More), len(op.RMore)) >= longList {
		go dp.startLater(o, key)
		return true
	}
	switch dp.start(o, key, false) {
	case pathbase.ByStream:
		return !dp.ops.refuse(o)
	case pathbase.NotYet:
		go dp.startLater(o, key)
	}
	return true
}

// startLater waits for what RMA could not wait for, then starts the op.
func (dp *dataPath) startLater(o *pendingOp, key fabric.RegionKey) {
	if dp.start(o, key, true) == pathbase.ByStream {
		dp.ops.handBack(o)
	}
}

// start starts an op. Without wait, the only driver call is the launch.
func (dp *dataPath) start(o *pendingOp, key fabric.RegionKey, wait bool) pathbase.Outcome {
	l, err := dp.grants.Find(key, wait)
	if errors.Is(err, pathbase.ErrNotYet) {
		return pathbase.NotYet
	}
	if err != nil {
		return dp.ops.fail(o, err)
	}
	gpu := firstOnDevice(o.op)
	if l.Refused != 0 || l.Region.kind == fabric.MemHost && gpu == nil {
		return pathbase.ByStream // the target reports the cause of a refusal, too
	}
	if err := grant.Check(o.op, l.Key.ID, l.Region.access, l.Region.size); err != nil {
		return dp.ops.fail(o, err)
	}
	if l.Region.kind == fabric.MemHost && !dp.peer.same {
		return dp.startOrder(o, l, wait)
	}
	if err := o.enter(l); err != nil {
		return dp.ops.fail(o, err)
	}
	err = dp.prepare(o, l, gpu, wait)
	if err == nil && wait && dp.peer.theirs.IsClosed() { // it took so long that the peer may have stopped waiting
		return dp.ops.fail(o, dp.closedByPeer())
	}
	if err == nil {
		dp.ops.launch(o)
		return pathbase.Started
	}
	o.release()
	if !dp.peer.same && gpu != nil && errors.Is(err, errUnreachable) {
		if out := dp.startOrder(o, l, wait); out != pathbase.ByStream { // perhaps the peer reaches ours
			return out
		}
	}
	return dp.notPrepared(o, err)
}

// startOrder makes the peer copy the op.
func (dp *dataPath) startOrder(o *pendingOp, l *regionGrant, wait bool) pathbase.Outcome {
	started, err := dp.orders.start(o, l, wait)
	if started {
		return pathbase.Started
	}
	o.release()
	if err != nil {
		return dp.notPrepared(o, err)
	}
	return pathbase.ByStream
}

// errUnreachable means that the copying device cannot access the peer's region.
var errUnreachable = errors.New("the peer's region is unreachable")

// notPrepared returns the outcome of an op whose preparation failed with err. An error of the op
// ends it; an error of a device leaves the op to the stream.
func (dp *dataPath) notPrepared(o *pendingOp, err error) pathbase.Outcome {
	var fault fabric.Errno
	switch {
	case errors.Is(err, pathbase.ErrNotYet):
		return pathbase.NotYet
	case errors.As(err, &fault) && fault == fabric.ErrNoMR || errors.Is(err, fabric.ErrRange):
		return dp.ops.fail(o, err)
	}
	dp.slow.Note(err)
	return pathbase.ByStream
}

// firstOnDevice returns the op's first local segment of device memory.
func firstOnDevice(op *fabric.Op) *fabric.Seg {
	if op.Seg.MR != 0 {
		return &op.Seg
	}
	for i := range op.More {
		if op.More[i].MR != 0 {
			return &op.More[i]
		}
	}
	return nil
}

// prepare chooses the device that copies, and builds the list of copies.
func (dp *dataPath) prepare(o *pendingOp, l *regionGrant, gpu *fabric.Seg, wait bool) error {
	d, err := o.copier(l, gpu)
	if err != nil {
		return err
	}
	base, err := o.reach(l, direction{d, o.op.Kind == fabric.OpRead}, wait)
	if err != nil {
		return err
	}
	if o.op.Blocks != nil {
		return o.listBlocks(o.op, base, wait)
	}
	return o.list(o.op, base, wait)
}

func (dp *dataPath) closedByPeer() error {
	return local.OpFault(fabric.ErrConnReset, "%s closed the connection", dp.port.Peer())
}

// The stream carries messages.

// Frame handles the peer's extension frames; see conn.DataPath.
func (dp *dataPath) Frame(kind uint8, body []byte) error {
	switch kind {
	case frameOrder:
		return dp.server.onOrder(body)
	case frameDone:
		return dp.orders.onDone(body)
	}
	return dp.grants.OnFrame(kind, body)
}

// holds reports whether a pending copy keeps a local region open.
func (dp *dataPath) holds(region uint64) bool {
	return dp.ops.holds(region) || dp.server.holds(region)
}

// Describe names the data path; see conn.DataPath.
func (dp *dataPath) Describe() (name, reason string) {
	where := fmt.Sprintf("process %d of this host", dp.peer.process.PID)
	if dp.peer.same {
		where = "this process"
	}
	reason = "GPUs copy from and to memory of " + where
	if why := dp.slow.Reason(); why != "" {
		reason += "; some ops use the socket: " + why
	}
	return "gpu", reason
}
