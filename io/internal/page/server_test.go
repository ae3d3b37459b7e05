// SPDX-License-Identifier: MIT

package page

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"mori/io/internal/meter"
)

type content struct{}

func (content) Stats() []meter.EngineStats { return engineStats() }

func (content) WriteTrace(w io.Writer) error {
	_, err := io.WriteString(w, `{"traceEvents":[]}`)
	return err
}

func open(t *testing.T) *Server {
	t.Helper()
	s, err := Open("", 0, content{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, method, url, host string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(b)
}

func TestWhatIsServed(t *testing.T) {
	s := open(t)
	for path, want := range map[string]struct{ kind, part string }{
		"/":           {"text/html; charset=utf-8", `<script src="page.js" defer>`},
		"/page.js":    {"text/javascript; charset=utf-8", "stats.json"},
		"/page.css":   {"text/css; charset=utf-8", "color-scheme"},
		"/metrics":    {"text/plain; version=0.0.4; charset=utf-8", "# TYPE mori_io_latency_seconds histogram"},
		"/stats.json": {"application/json", `"engines":[{"key":"a"`},
		"/trace.json": {"application/json", "traceEvents"},
	} {
		r, body := get(t, "GET", "http://"+s.Addr()+path, "")
		h := r.Header
		if r.StatusCode != 200 || h.Get("Content-Type") != want.kind || !strings.Contains(body, want.part) {
			t.Errorf("%s: %d, %s, %.200s", path, r.StatusCode, h.Get("Content-Type"), body)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
	_, body := get(t, "GET", "http://"+s.Addr()+"/stats.json", "")
	var back struct{ Engines []meter.EngineStats }
	if err := json.Unmarshal([]byte(body), &back); err != nil || back.Engines[0].Peers[0].Key != evil {
		t.Errorf("%v: %s", err, body)
	}
	if strings.Contains(body, "<") {
		t.Error("a name is HTML in /stats.json")
	}
}

func TestWhatIsRefused(t *testing.T) {
	s := open(t)
	for _, c := range []struct {
		method, path, host string
		want               int
	}{
		{"POST", "/", "", 405}, {"DELETE", "/metrics", "", 405}, {"PUT", "/nothing", "", 405}, {"GET", "/nothing", "", 404}, {"GET", "/debug/pprof/", "", 404},
		{"GET", "/../../etc/passwd", "", 404}, {"GET", "/page.html", "", 404}, {"HEAD", "/metrics", "", 200},
		{"GET", "/stats.json", "rebound.example", 403}, {"GET", "/stats.json", "rebound.example:80", 403}, {"GET", "/stats.json", "127.0.0.1.rebound.example", 403},
		{"GET", "/stats.json", "localhost:9464", 200}, {"GET", "/stats.json", "127.0.0.1", 200},
	} {
		if r, _ := get(t, c.method, "http://"+s.Addr()+c.path, c.host); r.StatusCode != c.want {
			t.Errorf("%s %s for %q: %d, want %d", c.method, c.path, c.host, r.StatusCode, c.want)
		}
	}
}

func dial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func TestAHugeRequestIsCutShort(t *testing.T) {
	c := dial(t, open(t))
	_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && !strings.Contains(line, "431") {
		t.Errorf("answered %q", line)
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	s := open(t)
	for range maxConns {
		c := dial(t, s) // the server counts a connection only after its first request
		_, _ = fmt.Fprint(c, "HEAD /page.css HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if b, err := io.ReadAll(dial(t, s)); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("one more than %d: %q, %v", maxConns, b, err)
	}
}

func TestATakenPortIsAnError(t *testing.T) {
	s := open(t)
	port := s.lis.Addr().(*net.TCPAddr).Port
	if other, err := Open("", port, content{}); err == nil {
		other.Close()
		t.Error("two servers on one port")
	}
}

func TestCloseFreesThePort(t *testing.T) {
	s, err := Open("127.0.0.1", 0, content{})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, s) // an idle client does not delay Close
	_, _ = fmt.Fprint(c, "GET /page.css HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("it still listens")
	}
}
