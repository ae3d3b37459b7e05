// SPDX-License-Identifier: MIT

package page

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"mori/io/internal/meter"
)

// Limits on the resources that a client can use.
const (
	maxConns      = 64
	maxHeader     = 8 << 10
	readTimeout   = 5 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 60 * time.Second
	closeTimeout  = time.Second
	loopback      = "127.0.0.1"
	contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

//go:embed page.html page.css page.js
var files embed.FS

// Content is what the server shows. It must be safe for concurrent use.
type Content interface {
	Stats() []meter.EngineStats
	WriteTrace(w io.Writer) error
}

// A Server serves until it is closed.
type Server struct {
	lis  net.Listener
	http http.Server
	done chan struct{}
}

// Open listens on host and port and starts to serve. An empty host is the loopback address; port 0
// is any free port.
func Open(host string, port int, c Content) (*Server, error) {
	if host == "" {
		host = loopback
	}
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s for metrics: %w", addr, err)
	}
	s := &Server{lis: lis, done: make(chan struct{})}
	local := lis.Addr().(*net.TCPAddr).IP.IsLoopback()
	s.http = http.Server{Handler: guard(routes(c), local), MaxHeaderBytes: maxHeader, ReadTimeout: readTimeout, ReadHeaderTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(&limited{Listener: lis, slots: make(chan struct{}, maxConns)}) // ends at Close
	}()
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.lis.Addr().String() }

// Close stops the server. Running requests get a second to finish.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
}

func routes(c Content) http.Handler {
	mux := http.NewServeMux()
	for path, f := range map[string]struct{ name, kind string }{
		"/{$}": {"page.html", "text/html; charset=utf-8"}, "/page.css": {"page.css", "text/css; charset=utf-8"},
		"/page.js": {"page.js", "text/javascript; charset=utf-8"},
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			b, _ := files.ReadFile(f.name) // embedded, so always present
			w.Header().Set("Content-Type", f.kind)
			_, _ = w.Write(b)
		})
	}
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = WriteMetrics(w, c.Stats()) // the client has left
	})
	mux.HandleFunc("GET /stats.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"engines": c.Stats()})
	})
	mux.HandleFunc("GET /trace.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Disposition", `attachment; filename="mori-io-trace.json"`)
		_ = c.WriteTrace(w)
	})
	return mux
}

// guard sets the headers of every response and rejects requests that only an attacker would send.
// local: the server is on a loopback address.
func guard(next http.Handler, local bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are supported", http.StatusMethodNotAllowed)
		case local && !literal(r.Host):
			http.Error(w, "use localhost or the address of this host in the URL", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// literal reports whether a Host header is an IP address or localhost. An attacker can make any
// other name resolve to this host.
func literal(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

// A limited listener closes connections beyond a limit immediately.
type limited struct {
	net.Listener
	slots chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &counted{Conn: c, slots: l.slots}, nil
		default:
			_ = c.Close()
		}
	}
}

// A counted connection releases its slot once.
type counted struct {
	net.Conn
	slots  chan struct{}
	closed sync.Once
}

func (c *counted) Close() error {
	c.closed.Do(func() { <-c.slots })
	return c.Conn.Close()
}
