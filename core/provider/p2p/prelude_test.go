// SPDX-License-Identifier: MIT

package p2p

import (
	"net"
	"testing"
)

// A prelude that fails returns nothing, not a nil *peerProcess in an interface that is released
// later.
func TestAPreludeThatFailsReturnsNothing(t *testing.T) {
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@mori-p2p-prelude-test", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	conn, err := net.DialUnix("unix", nil, lis.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	peer, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = peer.Close()
	if extra, err := (transport{}).Prelude(conn, true); err == nil || extra != nil {
		t.Errorf("%T %v, %v; want nothing and an error", extra, extra, err)
	}
}
