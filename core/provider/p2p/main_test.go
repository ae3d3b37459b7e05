// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"

	"mori/core/device"
	"mori/core/fabric/fabrictest"
	"mori/native/gpu/gputest"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestMain(m *testing.M) {
	gputest.Start()
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain())
	}
	_, _ = device.Devices() // what drivers keep open is not a leak
	code := fabrictest.Main(m)
	for _, what := range device.Live() {
		fmt.Fprintln(os.Stderr, "left open:", what)
		code = max(code, 1)
	}
	os.Exit(code)
}
