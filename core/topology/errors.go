// SPDX-License-Identifier: MIT

package topology

import "errors"

// Callers distinguish these with errors.Is; the text around them names the devices.
var (
	ErrNoNIC   = errors.New("no usable RDMA device")       // no device, or each is left out for a reason that the text gives
	ErrUnknown = errors.New("unknown RDMA device or port") // a setting names what this host does not have
)
