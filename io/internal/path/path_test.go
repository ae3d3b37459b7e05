// SPDX-License-Identifier: MIT

package path

import (
	"fmt"
	"log/slog"
	"testing"

	"mori/core/fabric"
	"mori/io/internal/errs"
)

// Neither an orderly shutdown by the peer nor the end of an idle path is worth a warning.
func TestSeverityOfAPathsEnd(t *testing.T) {
	for _, c := range []struct {
		reason error
		want   slog.Level
	}{
		{errs.ErrClosed, slog.LevelDebug},
		{ErrIdle, slog.LevelDebug},
		{fabric.ErrShutdown, slog.LevelInfo},
		{fabric.ErrConnReset, slog.LevelWarn},
		{fabric.ErrProtocol, slog.LevelWarn},
	} {
		reason := fmt.Errorf("connection to \"b\" ended: %w", c.reason)
		if got := severity(reason); got != c.want {
			t.Errorf("%v: level %v, want %v", reason, got, c.want)
		}
	}
}
