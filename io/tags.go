// SPDX-License-Identifier: MIT

package io

import "mori/io/internal/message"

// MaxTag is the length of a transfer's tag, in bytes.
const MaxTag = message.MaxTag

const (
	maxTags   = 16384 // remembered of one peer
	maxTagKey = 256   // longest key of an engine that is not registered here
)
