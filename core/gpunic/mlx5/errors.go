// SPDX-License-Identifier: MIT

package mlx5

import (
	"errors"
	"fmt"
)

// The errors that callers may need to distinguish.
var (
	ErrFormat   = errors.New("not in the NIC's format")           // bytes that no NIC or driver writes
	ErrClosed   = errors.New("closed")                            // the device, or an object of it
	ErrArgument = errors.New("argument outside the NIC's limits") // sizes, ranges, states
)

// A CommandError is the NIC's answer that it did not execute a command.
type CommandError struct {
	Op       uint16
	Status   uint8
	Syndrome uint32 // the firmware's own number of the cause
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("%s: status %#x (%s), syndrome %#x", OpName(e.Op), e.Status, statusText[e.Status], e.Syndrome)
}

// Statuses of commands: enum mlx5_cmd_status of the Linux driver
// (drivers/net/ethernet/mellanox/mlx5/core/cmd.c and mlx5/device.h).
const (
	StatusOK          = 0x0
	StatusBadOp       = 0x2
	StatusBadParam    = 0x3
	StatusBadRes      = 0x5
	StatusBusy        = 0x6
	StatusExceedLimit = 0x8
	StatusBadState    = 0x9
	StatusBadIndex    = 0xa
	StatusNoResources = 0xf
	StatusBadInLen    = 0x50
	StatusBadOutLen   = 0x51
)

var statusText = map[uint8]string{
	0x1: "internal error", StatusBadOp: "bad operation", StatusBadParam: "bad parameter", 0x4: "bad system state",
	StatusBadRes: "bad resource", StatusBusy: "resource busy", StatusExceedLimit: "limits exceeded", StatusBadState: "bad resource state",
	StatusBadIndex: "bad index", StatusNoResources: "no resources", StatusBadInLen: "bad input length", StatusBadOutLen: "bad output length",
	0x10: "bad input mailbox", 0x30: "bad state of the queue pair", 0x40: "bad size",
}
