// SPDX-License-Identifier: MIT

// Package stream is the protocol of connected endpoints (fabric.EPMsg) over stream sockets: TCP with several
// connections per endpoint, or one unix socket.
//
// A provider describes its sockets by a Transport and gets a whole fabric.Fabric from New: domains, listeners,
// endpoints. A Direct lets it move the payload of reads and writes by a way of its own, with everything else (states,
// fences, sends, receives, completions, shutdown) staying here.
package stream
