// SPDX-License-Identifier: MIT

// Package ending has the cases of connections that end, and of datagrams to peers that come and go.
package ending
