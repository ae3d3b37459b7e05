// SPDX-License-Identifier: MIT

// Package core puts providers together. It is the only place that names them: the layers above say
// which family of transports they want and get names in order of preference, and what is missing on
// this host in words.
package core
