// SPDX-License-Identifier: MIT

package nic

import (
	"errors"
	"fmt"

	"mori/native/abi"
)

var (
	// ErrGrid reports a grid that kernels cannot run on.
	ErrGrid = errors.New("invalid grid")
	// ErrStalled reports a queue whose poster waited longer than its limit for room or for its turn.
	ErrStalled = errors.New("the queue is stalled")
	// ErrTimedOut reports work that did not complete within the limit.
	ErrTimedOut = errors.New("the work did not complete in time")
	// ErrRefused reports work that no entry of the queue can express.
	ErrRefused = errors.New("no entry can express the work")
	// ErrCompletion reports an error in a completion of the NIC.
	ErrCompletion = errors.New("the NIC completed work with an error")
)

// StatusErr returns the error of a queue's status, or nil for abi.NICOK.
func StatusErr(status uint64) error {
	switch {
	case status == abi.NICOK:
		return nil
	case status == abi.NICStalled:
		return ErrStalled
	case status == abi.NICTimedOut:
		return ErrTimedOut
	case status == abi.NICRefused:
		return ErrRefused
	case status <= 0xffff:
		return fmt.Errorf("syndrome %#02x, vendor syndrome %#02x: %w", status&0xff, status>>8, ErrCompletion)
	}
	return fmt.Errorf("unknown status %#x", status)
}
