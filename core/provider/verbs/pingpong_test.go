// SPDX-License-Identifier: MIT

package verbs

import (
	"os"
	"os/exec"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/pingpong"
	"mori/core/provider/tcp"
	"mori/native/verbs/verbstest"
)

// pingpongEnv makes this program the answering side of BenchmarkPingPong, over the provider that it
// names.
const pingpongEnv = "MORI_VERBS_PINGPONG"

// pingpongProviders are those that are compared.
var pingpongProviders = map[string]func() fabric.Provider{
	"verbs": func() fabric.Provider { return New(Options{Log: quiet}) },
	"tcp":   func() fabric.Provider { return tcp.New(tcp.Options{Logger: quiet}) },
}

// answerPings is the other process.
func answerPings(name string) int {
	if err := pingpong.Serve(pingpongProviders[name](), os.Stdin, os.Stdout, os.Args[1:]); err != nil {
		panic(err)
	}
	return 0
}

// BenchmarkPingPong measures messages as fi_pingpong does, over verbs and over TCP in one run; see
// package pingpong. On emulated devices it measures these: they copy all bytes through a socket of
// their own, between threads.
func BenchmarkPingPong(b *testing.B) {
	verbstest.Need(b)
	for _, name := range []string{"verbs", "tcp"} {
		b.Run(name, func(b *testing.B) {
			pingpong.Bench(b, pingpong.Config{
				Provider: pingpongProviders[name],
				Command: func(args ...string) *exec.Cmd {
					cmd := exec.Command(os.Args[0], args...)
					cmd.Env = append(os.Environ(), pingpongEnv+"="+name)
					return cmd
				},
			})
		})
	}
}
