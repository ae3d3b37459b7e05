// SPDX-License-Identifier: MIT

package verbs

import (
	"os"
	"testing"

	"mori/core/fabric/fabrictest"
	"mori/native/gpu/gputest"
	"mori/native/verbs/verbstest"
)

func TestMain(m *testing.M) {
	if gpuAndNICAlike() {
		gputest.Start()
	}
	verbstest.Main(m, func(m *testing.M) int {
		if os.Getenv(childEnv) != "" {
			return childMain()
		}
		if name := os.Getenv(pingpongEnv); name != "" {
			return answerPings(name)
		}
		return fabrictest.Main(m)
	})
}

// gpuAndNICAlike: emulated NICs take memory of emulated GPUs only, and real ones of real GPUs.
func gpuAndNICAlike() bool { return verbstest.Real() == gputest.Real() }
