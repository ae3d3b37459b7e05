// SPDX-License-Identifier: MIT

package shm

import (
	"os"
	"os/exec"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/pingpong"
)

func pingpongProvider() fabric.Provider { return New(Options{Log: quiet}) }

// answerPings is the answering side of BenchmarkPingPong.
func answerPings() {
	if err := pingpong.Serve(pingpongProvider(), os.Stdin, os.Stdout, os.Args[1:]); err != nil {
		panic(err)
	}
}

// BenchmarkPingPong measures messages as fi_pingpong does; see package pingpong.
func BenchmarkPingPong(b *testing.B) {
	pingpong.Bench(b, pingpong.Config{
		Provider: pingpongProvider,
		Command: func(args ...string) *exec.Cmd {
			cmd := exec.Command("/proc/self/exe", args...)
			cmd.Env = append(os.Environ(), roleVariable+"=pingpong")
			return cmd
		},
		Reference: "shm",
	})
}
