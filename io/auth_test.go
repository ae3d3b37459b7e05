// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// A journal records an engine's log.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) string() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// has waits for a log line that contains all the words.
func (j *journal) has(t *testing.T, words ...string) {
	t.Helper()
	var text string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		text = j.string()
		for _, line := range strings.Split(text, "\n") {
			all := true
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				return
			}
		}
	}
	t.Errorf("no line with %q in:\n%s", words, text)
}

// guarded returns an engine with a secret, and its journal.
func guarded(t *testing.T, key, secret string) (*side, *journal) {
	t.Helper()
	e, err := NewEngine(key, EngineConfig{AuthSecret: secret})
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{}
	e.self.Log = slog.New(slog.NewTextHandler(j, nil))
	return newSideOf(t, e, 4096, BackendRDMA, nil), j
}

func TestWhoKnowsTheSecretIsLetIn(t *testing.T) {
	a, _ := guarded(t, "a", "open sesame")
	b, _ := guarded(t, "b", "open sesame")
	s := meet(t, a, b)
	fill(a.mem, 1)
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 1))
	if !bytes.Equal(a.mem, b.mem) {
		t.Error("bytes differ")
	}
}

func TestWhoDoesNotIsRefusedOnBothSides(t *testing.T) {
	for name, secrets := range map[string][2]string{"another secret": {"one", "two"}, "no secret here": {"", "two"}, "no secret there": {"one", ""}} {
		t.Run(name, func(t *testing.T) {
			a, ja := guarded(t, "a", secrets[0])
			b, jb := guarded(t, "b", secrets[1])
			if err := errors.Join(a.RegisterRemoteEngine(b.Desc()), b.RegisterRemoteEngine(a.Desc())); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			s, err := a.CreateSession(a.desc, b.desc)
			if s != nil || !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "MORI_AUTH_SECRET") || !strings.Contains(err.Error(), `"b"`) {
				t.Errorf("session %v, %v", s, err)
			}
			if time.Since(start) > 10*time.Second {
				t.Error("the refusal came by a timeout")
			}
			jb.has(t, "MORI_AUTH_SECRET", `b`)
			if secrets[0] != "" {
				ja.has(t, "MORI_AUTH_SECRET", `b`)
			}
			if strings.Contains(jb.string(), "two") || strings.Contains(err.Error(), "two") {
				t.Error("a secret was told")
			}
		})
	}
}
