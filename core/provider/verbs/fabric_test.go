// SPDX-License-Identifier: MIT

package verbs

import (
	"io"
	"log/slog"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/native/verbs/verbstest"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func openQuiet(testing.TB) fabric.Provider { return New(Options{Log: quiet}) }

func TestFabric(t *testing.T) {
	verbstest.Need(t)
	fabrictest.Test(t, openQuiet, fabric.EPMsg, fabric.EPRDM)
}

// Soft-RoCE sends memory that the program may not read: the kernel pins it for the device all the
// same.
func TestHoles(t *testing.T) {
	verbstest.NeedEmulated(t)
	fabrictest.TestHoles(t, openQuiet)
}
