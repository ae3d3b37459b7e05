// SPDX-License-Identifier: MIT

package backend

import "fmt"

// Kind names a family of transports. The numbers are part of the public contract.
type Kind int

// The backends.
const (
	Unknown Kind = iota
	XGMI         // peer copies between GPUs of one host
	RDMA         // RDMA; without a NIC: shared memory on the same host, TCP to others
	TCP          // TCP only
	Fabric       // scale-up fabric between hosts
)

var kindText = [...]string{"Unknown", "XGMI", "RDMA", "TCP", "FABRIC"}

// String returns the public name.
func (k Kind) String() string {
	if k >= 0 && int(k) < len(kindText) {
		return kindText[k]
	}
	return fmt.Sprintf("BackendType(%d)", int(k))
}

// PollCqMode selects how mori waits for a NIC's completions. Software transports ignore it and
// park.
type PollCqMode int

// The modes.
const (
	PollPolling PollCqMode = iota
	PollEvent
)
