// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"log/slog"
	"testing"

	"mori/core/fabric"
)

// A peer that leaves in good order, or a path that idles, is nothing to warn of.
func TestSeverityOfAPathsEnd(t *testing.T) {
	for _, c := range []struct {
		reason error
		want   slog.Level
	}{
		{ErrClosed, slog.LevelDebug},
		{errIdle, slog.LevelDebug},
		{fabric.ErrShutdown, slog.LevelInfo},
		{fabric.ErrConnReset, slog.LevelWarn},
		{fabric.ErrProtocol, slog.LevelWarn},
	} {
		reason := fmt.Errorf("connection to \"b\" ended: %w", c.reason)
		if got := (&path{}).severity(reason); got != c.want {
			t.Errorf("%v: level %v, want %v", reason, got, c.want)
		}
	}
}
