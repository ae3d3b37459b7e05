// SPDX-License-Identifier: MIT

package util

import "mori/core/fabric"

// FD is the descriptor to wait on; see fabric.WaitObject. It is closed as a CQ's is.
func (c *Counter) FD() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fd.descriptor(c.closed)
}

// TryWait is nil if both counts are as the last call saw them, and FD will report a change; see
// fabric.WaitObject.
func (c *Counter) TryWait() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.fd.release()
		return fabric.ErrClosed
	}
	if !c.changed() {
		if err := c.fd.arm(); err != nil {
			return err
		}
		c.aim()
		if !c.changed() { // a count that did not see next yet is seen here
			return nil
		}
	}
	c.fd.disarm()
	c.aim()
	return fabric.ErrAgain
}

// changed reports whether a count is not what it was at the last call. With mu held.
func (c *Counter) changed() bool {
	value := c.value.Load()
	was := value == c.fdValue && c.errs == c.fdErrs
	c.fdValue, c.fdErrs = value, c.errs
	return !was
}
