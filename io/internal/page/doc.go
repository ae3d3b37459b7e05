// SPDX-License-Identifier: MIT

// Package page shows the engines of this process over HTTP, to programs and to people:
//
//	/             a page to look at, which reads /stats.json each second
//	/metrics      Prometheus text format
//	/stats.json   everything that Engine.Stats returns, of each engine
//	/trace.json   the last transfers as trace events, for Perfetto
//
// It only reads. Whoever reaches the port may see names of peers, regions' numbers and tags, and
// nothing of any content; without MORI_METRICS_HOST that is this host alone. GET and HEAD are
// answered, with limits on time, on the size of a request and on connections. Names come from
// strangers: JSON and Prometheus text escape them, and the page sets them as text, never as HTML.
// Web pages of others get at nothing: there are no CORS headers, and on the loopback address a
// request must name it as its host, which a name that was bound anew (DNS rebinding) does not.
package page
