// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fileAll joins as all ranks through a file in this process; rank 0 comes a little later.
func fileAll(t *testing.T, path string, size int) {
	t.Helper()
	t.Setenv("MORI_SOCKET_IFNAME", "lo")
	groups := make([]Group, size)
	defer func() { closeAll(groups) }()
	errs := ranks(size, func(rank int) error {
		if rank == 0 {
			time.Sleep(50 * time.Millisecond)
		}
		g, err := JoinFile(context.Background(), path, rank, size, Options{Timeout: patience})
		if err != nil {
			return err
		}
		groups[rank] = g
		return exercise(g)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

func TestRanksJoinThroughAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meet")
	fileAll(t, path, 4)
	fileAll(t, path, 4) // again
}

func TestStaleFileIsNotTaken(t *testing.T) {
	for name, stale := range map[string]func(t *testing.T, path string){
		"of a run that is over": func(t *testing.T, path string) {
			if err := writeID(path, loopbackID(t)); err != nil {
				t.Fatal(err)
			}
		},
		"of a run whose port another group has": func(t *testing.T, path string) {
			id := loopbackID(t)
			var secret [secretSize]byte
			secret[0] = 1
			go func() { _, _ = Join(t.Context(), newID(secret, id.addr()), 0, 2, Options{Timeout: patience}) }()
			if err := writeID(path, id); err != nil {
				t.Fatal(err)
			}
		},
		"half a file": func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(fileTitle+"0100"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a FIFO": func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "meet")
			stale(t, path)
			fileAll(t, path, 3)
		})
	}
}

func TestFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meet")
	if err := writeID(path, loopbackID(t)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	if err := os.Chown(path, 1, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := readID(path); err == nil || !strings.Contains(err.Error(), "of user 1, want a file of user 0") {
		t.Errorf("a file of another user: %v", err)
	}
}

func TestFileNeverComes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meet")
	_, err := JoinFile(context.Background(), path, 1, 2, Options{Timeout: 50 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "it has not written "+path) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if _, err := JoinFile(context.Background(), filepath.Join(path, "no", "folder"), 0, 2, Options{Timeout: patience}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that there is no such folder", err)
	}
}
