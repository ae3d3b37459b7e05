// SPDX-License-Identifier: MIT

package logtest

import (
	"io"
	"os"
	"testing"

	"mori/core/logging"
)

func TestWanted(t *testing.T) {
	for _, c := range []struct {
		environ []string
		want    bool
	}{
		{[]string{"HOME=/", "MORI_IO_PATH=tcp"}, false},
		{[]string{"MORI_GLOBAL_LOG_LEVEL="}, false},
		{[]string{"MORI_GLOBAL_LOG_LEVEL=info"}, true},
		{[]string{"MORI_SHMEM_LOG_LEVEL=error"}, true},
		{[]string{"MORI_LOG_FILE=/tmp/log"}, true},
	} {
		if got := wanted(c.environ); got != c.want {
			t.Errorf("wanted(%q) = %v, want %v", c.environ, got, c.want)
		}
	}
}

func TestQuietDiscardsErrors(t *testing.T) {
	for _, name := range []string{"MORI_GLOBAL_LOG_LEVEL", "MORI_IO_LOG_LEVEL", "MORI_SHMEM_LOG_LEVEL", "MORI_LOG_FILE"} {
		t.Setenv(name, "")
	}
	stderr := os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = w
	defer func() { os.Stderr = stderr }()
	logging.SetOutput(w)
	logging.For("io").Error("printed")
	Quiet()
	logging.For("io").Error("discarded")
	_ = w.Close()
	printed, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := "printed\n"; len(printed) < len(want) || string(printed[len(printed)-len(want):]) != want {
		t.Errorf("standard error has %q, want one line that ends with %q", printed, want)
	}
}
