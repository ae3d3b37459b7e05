// SPDX-License-Identifier: MIT

package io

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"mori/core/config"
)

// freePort returns a port that no process listens on now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func TestOneServerShowsAllEngines(t *testing.T) {
	port := strconv.Itoa(freePort(t))
	t.Setenv(config.MetricsPort, port)
	a, b, s := pair(t, 4096, BackendTCP, nil)
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 1))
	url := "http://127.0.0.1:" + port
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (string, error) {
		r, err := c.Get(url + path)
		if err != nil {
			return "", err
		}
		defer func() { _ = r.Body.Close() }()
		text, err := io.ReadAll(r.Body)
		return string(text), err
	}
	for path, want := range map[string][]string{
		"/metrics":    {`mori_io_transfers_total{engine="a",peer="b",path="tcp",op="write"} 1`, `mori_io_regions{engine="b"} 1`},
		"/stats.json": {`"key":"a"`, `"key":"b"`}, "/trace.json": {`a → b over tcp`}, "/": {"mori.io"},
	} {
		text, err := get(path)
		for _, w := range want {
			if err != nil || !strings.Contains(text, w) {
				t.Errorf("%s has no %s: %v\n%.2000s", path, w, err, text)
			}
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := get("/metrics"); err != nil || strings.Contains(text, `engine="a"`) || !strings.Contains(text, `engine="b"`) {
		t.Errorf("after one engine was closed: %v\n%s", err, text)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := get("/metrics"); err == nil {
		t.Errorf("the server outlives the last engine: %s", text)
	}
}

func TestNoServerUnlessAsked(t *testing.T) {
	pair(t, 64, BackendTCP, nil)
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.server != nil || len(process.engines) != 2 {
		t.Errorf("server %v, %d engines", process.server, len(process.engines))
	}
}

func TestATakenMetricsPortIsOnlyAWarning(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, value := range []string{strconv.Itoa(l.Addr().(*net.TCPAddr).Port), "many", "-1", "65536"} {
		t.Setenv(config.MetricsPort, value)
		_, _, s := pair(t, 64, BackendTCP, nil)
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1))
	}
}
