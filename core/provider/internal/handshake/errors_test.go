// SPDX-License-Identifier: MIT

package handshake

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
)

// The sockets of a handshake have the deadline of its context, and may report it first.
func TestDeadlinesOfSocketsAreTimeouts(t *testing.T) {
	dialer := net.Dialer{Deadline: time.Unix(1, 0)}
	_, dialed := dialer.Dial("tcp", "127.0.0.1:1")
	here, there := net.Pipe()
	defer func() { _, _ = here.Close(), there.Close() }()
	if err := here.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	_, read := here.Read(make([]byte, 1))
	for name, cause := range map[string]error{"dial": dialed, "read": read} {
		if cause == nil {
			t.Fatalf("%s past its deadline has succeeded", name)
		}
		err := Error(context.Background(), "peer:7", cause)
		if !errors.Is(err, fabric.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "peer:7") {
			t.Errorf("%s: %v, want ErrTimeout that names the peer", name, err)
		}
	}
}
