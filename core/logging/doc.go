// SPDX-License-Identifier: MIT

// Package logging gives each module its logger: log/slog records, one line each on standard error,
//
//	[2026-11-21 04:02:11.123] [4242] [io] [warn] text key=value
//
// The level comes from MORI_<MODULE>_LOG_LEVEL, then MORI_GLOBAL_LOG_LEVEL, then "warn", read when
// the module first logs; SetLevel beats them all. MORI_LOG_FILE adds a file. Warnings and errors
// that repeat are counted instead: see limiter.
package logging
