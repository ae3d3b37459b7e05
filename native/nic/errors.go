// SPDX-License-Identifier: MIT

package nic

import (
	"errors"
	"fmt"
)

var (
	// ErrGrid is a grid that kernels cannot run on.
	ErrGrid = errors.New("invalid grid")
	// ErrStalled is a queue whose poster waited longer than its limit for room or for its turn.
	ErrStalled = errors.New("the queue is stalled")
	// ErrTimedOut is work that was not done within the limit.
	ErrTimedOut = errors.New("the work did not complete in time")
	// ErrRefused is work that no entry of the queue can express.
	ErrRefused = errors.New("no entry can express the work")
	// ErrCompletion is an error that the NIC reported in a completion.
	ErrCompletion = errors.New("the NIC completed work with an error")
)

// Values of Outcome.Status and of a queue's status, see native/include/mori/nic/queue.hpp.
const (
	StatusOK       = 0
	StatusStalled  = 0x10000
	StatusTimedOut = 0x20000
	StatusRefused  = 0x40000
)

// StatusErr says what a queue's status means; nil for StatusOK.
func StatusErr(status uint64) error {
	switch {
	case status == StatusOK:
		return nil
	case status == StatusStalled:
		return ErrStalled
	case status == StatusTimedOut:
		return ErrTimedOut
	case status == StatusRefused:
		return ErrRefused
	case status <= 0xffff:
		return fmt.Errorf("syndrome %#02x, vendor syndrome %#02x: %w", status&0xff, status>>8, ErrCompletion)
	}
	return fmt.Errorf("unknown status %#x", status)
}

// Err is why the kernel did not do all it should; nil if it did. It does not look at Wrong.
func (o *Outcome) Err() error {
	err := StatusErr(o.Status)
	if r := o.Report; err != nil && r.Ready != 0 {
		return fmt.Errorf("%w (rank %d waited at %#[4]x for value %[3]d of rank %[6]d, and last saw %[5]d)", err, r.Rank, r.Expected, r.Address, r.Seen, r.Peer)
	}
	return err
}
