// SPDX-License-Identifier: MIT

package memory

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"mori/core/internal/sys"
	"mori/core/internal/sys/sock"
)

// A Ticket names a shared segment or file. Any process of the same user that has it can map the
// segment.
type Ticket struct {
	Socket string   // an abstract unix socket
	Secret [16]byte // secret of the sharer
	ID     uint32   // number of the segment or file at the sharer
	Limit  uint64   // limit of a segment
}

// shareTimeout bounds one transfer of a descriptor. Both sides are on one host.
const shareTimeout = 10 * time.Second

// request: secret, id.
const requestLen = 16 + 4

// A Sharer passes segments of this process to processes of the same user, over a unix socket.
type Sharer struct {
	listener *net.UnixListener
	secret   [16]byte
	serving  sync.WaitGroup

	mu    sync.Mutex
	files map[uint32]int // descriptors
	next  uint32
}

// NewSharer starts listening.
func NewSharer() (*Sharer, error) {
	var name [16]byte
	s := &Sharer{files: map[uint32]int{}}
	_, _ = rand.Read(name[:]) // never fails
	_, _ = rand.Read(s.secret[:])
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@mori-segment-" + hex.EncodeToString(name[:]), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for requests to share memory: %w", err)
	}
	s.listener = l
	s.serving.Add(1)
	go s.serve()
	return s, nil
}

// Share returns the ticket of a segment, which the caller keeps. Close the sharer, or call Unshare,
// before you close the segment.
func (s *Sharer) Share(seg *Segment) Ticket { return s.share(seg.fd, seg.Limit()) }

// ShareFile returns the ticket of a file that is not a segment, such as one that names GPU memory;
// use OpenFile for it. The caller keeps the file open until Unshare.
func (s *Sharer) ShareFile(f *os.File) (Ticket, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return Ticket{}, fmt.Errorf("share a file: %w", err)
	}
	var t Ticket
	if err := raw.Control(func(fd uintptr) { t = s.share(int(fd), 0) }); err != nil {
		return Ticket{}, fmt.Errorf("share a file: %w", err)
	}
	return t, nil
}

func (s *Sharer) share(fd int, limit uint64) Ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.files[s.next] = fd
	return Ticket{Socket: s.listener.Addr().String(), Secret: s.secret, ID: s.next, Limit: limit}
}

// Unshare stops sharing one segment or file. Existing mappings stay valid.
func (s *Sharer) Unshare(t Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, t.ID)
}

// Close stops sharing.
func (s *Sharer) Close() error {
	err := s.listener.Close()
	s.serving.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Sharer) serve() {
	defer s.serving.Done()
	for {
		c, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example out of descriptors, which may pass
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s.serving.Add(1)
		go func() {
			defer s.serving.Done()
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(shareTimeout))
			s.answer(c)
		}()
	}
}

// answer sends a segment's descriptor to a process that knows the secret, and nothing to others.
func (s *Sharer) answer(c *net.UnixConn) {
	if !sameUser(c) {
		return
	}
	var request [requestLen]byte
	if _, err := io.ReadFull(c, request[:]); err != nil || subtle.ConstantTimeCompare(request[:16], s.secret[:]) != 1 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock() // the descriptor stays open until it is sent
	if fd, ok := s.files[binary.LittleEndian.Uint32(request[16:])]; ok {
		_, _, _ = c.WriteMsgUnix([]byte{1}, sock.Rights(fd), nil)
	}
}

func sameUser(c *net.UnixConn) (same bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		cred, err := sock.PeerCred(int(fd))
		same = err == nil && cred.UID == uint32(os.Getuid())
	})
	return same && err == nil
}

// OpenSegment maps the segment of a ticket, as another mapping of the same memory.
func OpenSegment(ctx context.Context, t Ticket) (*Segment, error) {
	fd, err := fetch(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("fetch segment %d of %s: %w", t.ID, t.Socket, err)
	}
	seg, err := mapSegment(fd, t.Limit, 1)
	if err == nil {
		if err = seg.Seen(); err != nil { // the descriptor is not a segment, or could shrink
			err = errors.Join(err, seg.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("map segment %d of %s: %w", t.ID, t.Socket, err)
	}
	return seg, nil
}

// OpenFile opens the file of a ticket of ShareFile.
func OpenFile(ctx context.Context, t Ticket) (*os.File, error) {
	fd, err := fetch(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("fetch file %d of %s: %w", t.ID, t.Socket, err)
	}
	return os.NewFile(uintptr(fd), "shared file"), nil
}

// fetch requests the descriptor.
func fetch(ctx context.Context, t Ticket) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	var d net.Dialer
	dialed, err := d.DialContext(ctx, "unix", t.Socket)
	if err != nil {
		return -1, err
	}
	defer func() { _ = dialed.Close() }()
	c := dialed.(*net.UnixConn)
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	if _, err := c.Write(binary.LittleEndian.AppendUint32(append([]byte(nil), t.Secret[:]...), t.ID)); err != nil {
		return -1, err
	}
	var answer, rights [64]byte
	_, n, _, _, err := c.ReadMsgUnix(answer[:1], rights[:])
	if err != nil {
		return -1, err
	}
	fds := sock.ParseRights(rights[:n])
	if len(fds) == 0 {
		return -1, errors.New("refused: its owner does not share it")
	}
	for _, extra := range fds[1:] {
		_ = sys.CloseFD(extra)
	}
	return fds[0], nil
}
