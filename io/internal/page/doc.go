// SPDX-License-Identifier: MIT

// Package page shows the engines of this process over HTTP, to programs and to people:
//
//	/             a page to look at, which reads /stats.json each second
//	/metrics      Prometheus text format
//	/stats.json   everything that Engine.Stats returns, of each engine
//	/trace.json   the last transfers as trace events, for Perfetto
//
// It is read-only. A client that reaches the port may see names of peers, numbers of regions and
// tags, but no content. Without MORI_METRICS_HOST only this host reaches it. GET and HEAD are
// answered, with limits on time, request size and connections. Names come from strangers: JSON and
// Prometheus text escape them, and the page sets them as text, never as HTML. Other web pages get
// no access: there are no CORS headers, and on the loopback address a request must name it as its
// host, which a rebound name (DNS rebinding) does not.
package page
