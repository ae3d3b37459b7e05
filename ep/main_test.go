// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"os"
	"testing"

	"mori/core/device"
	"mori/core/fabric/fabrictest"
	"mori/core/logging/logtest"
	"mori/native/gpu/gputest"
	"mori/native/verbs/verbstest"
)

func TestMain(m *testing.M) {
	logtest.Quiet()
	verbstest.Start()
	if _, chosen := os.LookupEnv("FABRIC_PROVIDER"); !chosen {
		_ = os.Setenv("FABRIC_PROVIDER", "^verbs") // tests that need NICs ask for them
	}
	gputest.Main(m, func(m *testing.M) int {
		code := fabrictest.Main(m)
		if open := device.Live(); len(open) > 0 && code == 0 {
			fmt.Fprintf(os.Stderr, "left open on GPUs: %q\n", open)
			code = 1
		}
		return code
	})
}
