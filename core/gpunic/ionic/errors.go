// SPDX-License-Identifier: MIT

package ionic

import "errors"

// ErrFormat reports bytes that no driver or NIC writes.
var ErrFormat = errors.New("not in the NIC's format")
