// SPDX-License-Identifier: MIT

package topology

import "errors"

// The errors that callers check for with errors.Is; their text names the devices.
var (
	ErrNoNIC   = errors.New("no usable RDMA device")       // no device, or none that can be used, with the reasons
	ErrUnknown = errors.New("unknown RDMA device or port") // a setting names a device that this host does not have
)
