// SPDX-License-Identifier: MIT

package nic

import (
	"fmt"

	"mori/native/abi"
)

// An Outcome is a kernel's result: sums over all its blocks.
type Outcome struct{ abi.NICOutcome }

// Err returns why the kernel did not finish its work, or nil. It ignores Wrong.
func (o *Outcome) Err() error {
	err := StatusErr(o.Status)
	if r := o.Report; err != nil && r.Ready != 0 {
		return fmt.Errorf("%w (rank %d waited at %#[4]x for value %[3]d of rank %[6]d, and last saw %[5]d)", err, r.Rank, r.Expected, r.Address, r.Seen, r.Peer)
	}
	return err
}
