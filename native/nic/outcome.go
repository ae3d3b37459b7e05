// SPDX-License-Identifier: MIT

package nic

import (
	"fmt"

	"mori/native/abi"
)

// An Outcome is what a kernel reports: sums over all its blocks.
type Outcome struct{ abi.NICOutcome }

// Err is why the kernel did not do all it should; nil if it did. It does not look at Wrong.
func (o *Outcome) Err() error {
	err := StatusErr(o.Status)
	if r := o.Report; err != nil && r.Ready != 0 {
		return fmt.Errorf("%w (rank %d waited at %#[4]x for value %[3]d of rank %[6]d, and last saw %[5]d)", err, r.Rank, r.Expected, r.Address, r.Seen, r.Peer)
	}
	return err
}
