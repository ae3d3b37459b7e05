// SPDX-License-Identifier: MIT

package bootstrap

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// The file of JoinFile is this line, and the id in hexadecimal on the next.
const fileTitle = "mori bootstrap 1\n"

// JoinFile is Join for ranks that share a folder, perhaps with other hosts, and nothing else: rank
// 0 writes a new id to path, the others wait for it. A file that an earlier run has left there is
// replaced by rank 0, and harms nobody who reads it before: nobody answers at its address, or not
// with its secret, and the file is read again. Rank 0 removes the file when all have come. Two runs
// that use the same path at the same time disturb each other. The file is only taken from the same
// user, and only that user can read it.
func JoinFile(ctx context.Context, path string, rank, size int, o Options) (Group, error) {
	return wrapJoin(rank, size, func() (*member, error) {
		o, err := o.complete()
		if err != nil {
			return nil, err
		}
		if rank != 0 {
			return join(ctx, rank, size, o, func() ([]target, error) { return readTarget(path) })
		}
		id, err := NewUniqueID()
		if err != nil {
			return nil, err
		}
		defer reservations.release(id)
		m, err := host(ctx, id.secret(), size, o, func(ctx context.Context) (net.Listener, error) {
			l, err := listenReserved(ctx, id)
			if err != nil {
				return nil, err
			}
			if err := writeID(path, id); err != nil {
				return nil, errors.Join(err, l.Close())
			}
			return l, nil
		})
		if now, e := readID(path); e == nil && now == id {
			_ = os.Remove(path)
		}
		return m, err
	})
}

// writeID replaces path atomically: a reader sees the old or the new file.
func writeID(path string, id UniqueID) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write the id to %s: %w", path, err)
	}
	_, err = f.WriteString(fileTitle + hex.EncodeToString(id[:]) + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the id to %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// readID reads the id from path, if this user wrote it.
func readID(path string) (UniqueID, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO at this path must not block
	if err != nil {
		return UniqueID{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return UniqueID{}, err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || ok && int(s.Uid) != os.Geteuid() {
		return UniqueID{}, fmt.Errorf("%s is %s of user %d, want a file of user %d", path, info.Mode(), s.Uid, os.Geteuid())
	}
	b, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return UniqueID{}, err
	}
	return parseFile(b)
}

// parseFile accepts any input.
func parseFile(b []byte) (UniqueID, error) {
	b, ok := bytes.CutPrefix(b, []byte(fileTitle))
	if !ok {
		return UniqueID{}, fmt.Errorf("%w: the file does not begin with %q", ErrBadID, fileTitle)
	}
	id, err := hex.DecodeString(string(bytes.TrimSpace(b)))
	if err != nil {
		return UniqueID{}, fmt.Errorf("%w: %w", ErrBadID, err)
	}
	return ParseUniqueID(id)
}

func readTarget(path string) ([]target, error) {
	id, err := readID(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("it has not written %s", path)
	}
	if err != nil {
		return nil, err
	}
	return []target{{addr: id.addr().String(), secret: id.secret()}}, nil
}
