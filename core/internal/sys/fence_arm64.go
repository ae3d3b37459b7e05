// SPDX-License-Identifier: MIT

package sys

// Fence makes stores before it visible to all cores before loads and stores after it are done.
func Fence()
