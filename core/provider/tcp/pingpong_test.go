// SPDX-License-Identifier: MIT

package tcp_test

import (
	"os"
	"os/exec"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/pingpong"
	"mori/core/provider/tcp"
)

// pingpongEnv makes this binary the answering side of BenchmarkPingPong.
const pingpongEnv = "MORI_TCP_TEST_PINGPONG"

// BenchmarkPingPong measures messages as fi_pingpong does; see package pingpong.
func BenchmarkPingPong(b *testing.B) {
	pingpong.Bench(b, pingpong.Config{
		Provider: func() fabric.Provider { return tcp.New(tcp.Options{}) },
		Command: func(args ...string) *exec.Cmd {
			cmd := exec.Command(os.Args[0], args...)
			cmd.Env = append(os.Environ(), pingpongEnv+"=1")
			return cmd
		},
		Reference:    "tcp;ofi_rxm",
		ReferenceMsg: "tcp",
	})
}
