// SPDX-License-Identifier: MIT

package tcp

import (
	"net"

	"golang.org/x/sys/unix"

	"mori/core/provider/internal/inet"
)

// rateAfter is how many bytes a connection must have carried before its rate is used. The rate of
// the first few bytes measures the round trip instead of the bandwidth.
const rateAfter = 256 << 10

// rate returns the rate in bytes/s that the kernel has measured for a connection, or 0.
func rate(conn net.Conn) float64 {
	c := inet.Wire(conn)
	if c == nil {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	var info *unix.TCPInfo
	err = raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err != nil || info == nil || info.Bytes_acked < rateAfter {
		return 0 // the error ends the connection, which the reader and writer detect
	}
	return float64(info.Delivery_rate)
}
