// SPDX-License-Identifier: MIT

package ionic

import "errors"

// ErrFormat is the cause for bytes that no driver or NIC writes.
var ErrFormat = errors.New("not in the NIC's format")
