// SPDX-License-Identifier: MIT

package limits

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestDescriptorsAreCounted(t *testing.T) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was) })
	if err := Descriptors(16); err != nil {
		t.Skipf("this process has fewer than 16 descriptors to begin with: %v", err)
	}
	for _, c := range []struct {
		limit uint64
		need  int
		short bool
	}{{0, 1, true}, {3, 1, true}, {64, 64, true}, {64, 4, false}} {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: c.limit, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
		err := Descriptors(c.need)
		if errors.Is(err, ErrShort) != c.short || c.short && !strings.Contains(err.Error(), "ulimit -n") {
			t.Errorf("limit %d, need %d: %v", c.limit, c.need, err)
		}
	}
}

func TestErrorsOfTheSystemAreShortages(t *testing.T) {
	for err, want := range map[error]bool{syscall.EMFILE: true, syscall.ENFILE: true, ErrShort: true, syscall.ENOENT: false} {
		if IsShort(err) != want {
			t.Errorf("%v is a shortage: %v", err, !want)
		}
	}
}
