// SPDX-License-Identifier: MIT

// Package sock sends and receives lists of memory on sockets. On unix sockets it passes descriptors
// and reads the peer's credentials.
package sock
