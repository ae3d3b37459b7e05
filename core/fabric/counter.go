// SPDX-License-Identifier: MIT

package fabric

// An AVAddr is a peer's number in an AV. Zero means no peer.
type AVAddr uint64

// A CountUnit is the unit of a Counter.
type CountUnit uint8

// The units.
const (
	CountOps   CountUnit = iota // ops
	CountBytes                  // bytes that ops moved; failures still count as ops
)

// CountEvents are the kinds of an endpoint's ops that a Counter counts when they end.
type CountEvents uint8

// The events.
const (
	CountSend  CountEvents = 1 << iota
	CountRecv              // messages received
	CountRead              // reads, fetching and comparing atomics
	CountWrite             // writes and plain atomics

	CountAll CountEvents = 1<<iota - 1
)

// CountEventOf returns the event of an op of this kind. It is 0 for OpRemoteWrite, which is not
// counted.
func CountEventOf(kind OpKind) CountEvents {
	switch kind {
	case OpSend:
		return CountSend
	case OpRecv:
		return CountRecv
	case OpRead, OpFetchAtomic, OpCompareAtomic:
		return CountRead
	case OpWrite, OpAtomic:
		return CountWrite
	}
	return 0
}
