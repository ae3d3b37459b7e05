// SPDX-License-Identifier: MIT

// Package logging provides each module's logger: log/slog records, one line each on standard error,
//
//	[2026-11-21 04:02:11.123] [4242] [io] [warn] text key=value
//
// The level is that of MORI_<MODULE>_LOG_LEVEL, else of MORI_GLOBAL_LOG_LEVEL, else "warn", read
// when the module first logs. SetLevel overrides them. MORI_LOG_FILE adds a file. Repeated warnings
// and errors are counted: see limiter.
package logging
