// SPDX-License-Identifier: MIT

package reliability

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestASessionWithAPeerThatIsStopped: create_session ends at MORI_IO_CP_TIMEOUT_MS, with an error
// that names the peer, on the first contact and with an open connection.
func TestASessionWithAPeerThatIsStopped(t *testing.T) {
	eachTransport(t, func(t *testing.T, tcp bool) {
		for _, connected := range []bool{false, true} {
			env := []string{"MORI_IO_CP_TIMEOUT_MS=200"}
			a, b := startPeer(t, nil, startArgs{Key: "a", TCP: tcp, env: env}), startPeer(t, nil, startArgs{Key: "b", TCP: tcp})
			a.ask("know", b.desc, nil)
			var remote []byte
			a.ask("region", regionArgs{Blocks: 1}, nil)
			b.ask("region", regionArgs{Blocks: 1}, &remote)
			args := sessionArgs{Local: 0, Remote: remote}
			if connected {
				a.ask("session", args, nil)
			}
			b.signal(syscall.SIGSTOP)
			for range 2 { // over the connection that is open, and over a new one
				start := time.Now()
				if err := a.try("session", args, nil); err == nil || !strings.Contains(err.Error(), `"b"`) {
					t.Errorf("connected %v: %v, want an error that names the peer", connected, err)
				}
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("connected %v: it took %v, the limit is 200 ms", connected, took)
				}
			}
			a.kill()
			b.kill()
		}
	})
}
