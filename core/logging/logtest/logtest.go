// SPDX-License-Identifier: MIT

// Package logtest keeps mori's log out of the output of tests, many of which provoke errors.
package logtest

import (
	"io"
	"os"
	"strings"

	"mori/core/config"
	"mori/core/logging"
)

// Quiet discards the log, unless the environment sets a log level or MORI_LOG_FILE. TestMain calls
// it first.
func Quiet() {
	if !wanted(os.Environ()) {
		logging.SetOutput(io.Discard)
	}
}

// wanted reports whether an environment variable requests the log.
func wanted(environ []string) bool {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		level := strings.HasPrefix(name, "MORI_") && strings.HasSuffix(name, "_LOG_LEVEL")
		if value != "" && (level || name == config.LogFile) {
			return true
		}
	}
	return false
}
