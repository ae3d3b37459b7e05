// SPDX-License-Identifier: MIT

package sys

// Fence makes earlier stores visible to all cores before later loads and stores take effect.
func Fence()
