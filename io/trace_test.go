// SPDX-License-Identifier: MIT

package io

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mori/core/config"
	"mori/io/internal/stall"
)

// freshStalls resets the process's limit on traces of stalls, now and at the end of the test.
func freshStalls(t *testing.T) {
	t.Helper()
	forget := func() { process.stalls = stall.Limit{} }
	forget()
	t.Cleanup(forget)
}

func TestAStallLeavesATrace(t *testing.T) {
	freshStalls(t)
	dir := t.TempDir()
	t.Setenv(config.TraceDir, dir)
	cfg := DefaultBackendConfig()
	cfg.DeadlineMS = 150
	w := newWired(t, 4096, cfg)
	w.cutAll()
	for uid := range uint64(3) {
		st := writeTagged(w.s, "req-7", 4096, uid)
		if c := st.Wait(deadline(t)); c != CodeErrRDMAOp || !strings.Contains(st.Message(), "deadline") {
			t.Fatalf("%v %s", c, st.Message())
		}
	}
	if err := w.a.Close(); err != nil { // waits for running writes
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(dir, "mori-io-a-*.json"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%v files, want one in 10 s: %v", all, err)
	}
	text, err := os.ReadFile(all[0])
	var doc struct {
		TraceEvents []struct {
			Ph   string
			Args map[string]any
		}
	}
	if err != nil || json.Unmarshal(text, &doc) != nil {
		t.Fatalf("%v: %s", err, text)
	}
	seen := false
	for _, e := range doc.TraceEvents {
		seen = seen || e.Ph == "X" && e.Args["tag"] == "req-7" && e.Args["code"] == "ERR_RDMA_OP" && e.Args["peer"] == "b"
	}
	if !seen {
		t.Errorf("the stalled transfer is not in its trace: %s", text)
	}
	if i, err := os.Stat(all[0]); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others may read it", i, err)
	}
}

func TestNoTraceOfOtherFailures(t *testing.T) {
	freshStalls(t)
	dir := t.TempDir()
	t.Setenv(config.TraceDir, dir)
	w := newWired(t, 4096, nil)
	if err := w.b.DeregisterMemory(w.b.desc); err != nil {
		t.Fatal(err)
	}
	w.s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 1).Wait(deadline(t))
	_ = w.a.Close()
	if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}
