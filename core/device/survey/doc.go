// SPDX-License-Identifier: MIT

// Package survey says what GPUs this process has, what lies between them, and what makes copies
// between them slow. It makes nothing on any device.
package survey
