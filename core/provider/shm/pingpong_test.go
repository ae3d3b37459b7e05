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

// answerPings runs the answering side of BenchmarkPingPong.
func answerPings() {
	if err := pingpong.Serve(pingpongProvider(), os.Stdin, os.Stdout, os.Args[1:]); err != nil {
		panic(err)
	}
}

// BenchmarkPingPong measures messages like fi_pingpong; see package pingpong. On 2 cores of an EPYC
// VM, in us for a transfer, over several runs on an otherwise idle machine:
//
//	                    64 B         4 KiB        64 KiB     1 MiB    4 MiB
//	EPMsg               0.41 - 0.60  0.83 - 0.89  7.1 - 7.5  88 - 92  390
//	EPRDM               0.45 - 0.77  0.94 - 1.2   7.9 - 9.5  92 - 94  450
//	fi_pingpong, shm    0.38 - 0.51  0.54 - 0.95  6.7 - 8.2  83 - 93  380 - 540
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
