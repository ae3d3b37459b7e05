// SPDX-License-Identifier: MIT

// Package page serves the state of this process's engines over HTTP, to programs and to people:
//
//	/             an HTML page, which reads /stats.json each second
//	/metrics      Prometheus text format
//	/stats.json   everything that Engine.Stats returns, of each engine
//	/trace.json   the last transfers as trace events, for Perfetto
//
// The server is read-only. A client that reaches the port may see names of peers, numbers of
// regions and tags, but no content. Without MORI_METRICS_HOST only this host can reach it. It
// accepts GET and HEAD, with limits on time, request size and connections.
//
// Names come from untrusted peers. JSON and Prometheus text escape them, and the page inserts them
// as text, never as HTML. Other websites get no access: the server sends no CORS headers. On the
// loopback address, the Host header of a request must be an IP address or localhost, which stops
// DNS rebinding.
package page
