// SPDX-License-Identifier: MIT

package fabric

import (
	"errors"
	"fmt"
	"syscall"
)

// An Errno is the cause of every error of this package. The numbers are libfabric's (fi_errno.h):
// those below 256 are the system's, the others are specific to fabrics.
type Errno int32

// The errors that callers may need to distinguish.
const (
	ErrAccess       Errno = Errno(syscall.EACCES)       // the region does not grant this right
	ErrAgain        Errno = Errno(syscall.EAGAIN)       // queue full or empty: try again after progress
	ErrBusy         Errno = Errno(syscall.EBUSY)        // a child object is still open
	ErrFault        Errno = Errno(syscall.EFAULT)       // memory of the op or region is not mapped, or not with these rights
	ErrInvalid      Errno = Errno(syscall.EINVAL)       // an argument is wrong
	ErrNoSys        Errno = Errno(syscall.ENOSYS)       // this provider does not offer it
	ErrNoData       Errno = Errno(syscall.ENODATA)      // nothing matches
	ErrExist        Errno = Errno(syscall.EEXIST)       // a provider of this name and version is registered
	ErrIsConn       Errno = Errno(syscall.EISCONN)      // the endpoint was connected before
	ErrNotConn      Errno = Errno(syscall.ENOTCONN)     // the endpoint has no peer
	ErrConnRefused  Errno = Errno(syscall.ECONNREFUSED) // no listener, or the peer rejected the request
	ErrConnReset    Errno = Errno(syscall.ECONNRESET)   // the connection broke
	ErrConnAborted  Errno = Errno(syscall.ECONNABORTED) // shut down on this side
	ErrShutdown     Errno = Errno(syscall.ESHUTDOWN)    // the peer shut down the connection in order
	ErrTimeout      Errno = Errno(syscall.ETIMEDOUT)    // the deadline passed
	ErrCanceled     Errno = Errno(syscall.ECANCELED)    // ended by Cancel or Close
	ErrMsgSize      Errno = Errno(syscall.EMSGSIZE)     // larger than Limits.MaxMsg
	ErrRange        Errno = Errno(syscall.ERANGE)       // outside the region
	ErrPerm         Errno = Errno(syscall.EPERM)        // the system denied permission
	ErrOther        Errno = 256                         // any other cause
	ErrTooSmall     Errno = 257                         // the space is too small
	ErrOpBadState   Errno = 258                         // not allowed in this state, such as before Enable
	ErrAvail        Errno = 259                         // read the error entry with ReadErr first
	ErrBadFlags     Errno = 260                         // flags that cannot be combined
	ErrNoEQ         Errno = 261                         // no event queue bound
	ErrNoCQ         Errno = 263                         // no completion queue bound
	ErrCRC          Errno = 264                         // the checksum differs
	ErrTruncated    Errno = 265                         // the message was longer than the receive buffer
	ErrNoKey        Errno = 266                         // no region has this key, or the key is taken
	ErrNoAV         Errno = 267                         // no address vector bound
	ErrOverrun      Errno = 268                         // a queue overflowed
	ErrNoMR         Errno = 270                         // no such local region
	ErrClosed       Errno = Errno(syscall.EBADF)        // the object was closed
	ErrProtocol     Errno = Errno(syscall.EPROTO)       // the peer violated the protocol
	ErrNotSupported Errno = Errno(syscall.EOPNOTSUPP)   // definitely not possible here
)

var fabricErrnoText = map[Errno]string{
	ErrOther:      "unspecified fabric error",
	ErrTooSmall:   "provided space is too small",
	ErrOpBadState: "operation not permitted in this state",
	ErrAvail:      "error entry available",
	ErrBadFlags:   "flags not supported",
	ErrNoEQ:       "missing or unavailable event queue",
	ErrNoCQ:       "missing or unavailable completion queue",
	ErrCRC:        "checksum mismatch",
	ErrTruncated:  "message truncated",
	ErrNoKey:      "region key not known or taken",
	ErrNoAV:       "missing or unavailable address vector",
	ErrOverrun:    "queue overrun",
	ErrNoMR:       "memory region not known",
	ErrClosed:     "object closed",
	ErrRange:      "outside the memory region",
}

// Error returns the cause as text.
func (e Errno) Error() string {
	if s, ok := fabricErrnoText[e]; ok {
		return s
	}
	if e > 0 && e < 256 {
		return syscall.Errno(e).Error()
	}
	return fmt.Sprintf("fabric error %d", int32(e))
}

// Is makes errors.Is(err, syscall.EAGAIN) true for the numbers shared with the system, and
// errors.Is(err, errors.ErrUnsupported) for what this host or provider definitely does not support.
func (e Errno) Is(target error) bool {
	if target == errors.ErrUnsupported {
		return e == ErrNotSupported || e == ErrNoSys
	}
	s, ok := target.(syscall.Errno)
	return ok && e < 256 && Errno(s) == e
}

// ErrnoOf returns the Errno that err wraps. It converts the system's numbers, and returns 0 for nil
// and ErrOther for anything else.
func ErrnoOf(err error) Errno {
	for err != nil {
		switch e := err.(type) {
		case Errno:
			return e
		case syscall.Errno:
			return Errno(e)
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return ErrOther
		}
		err = u.Unwrap()
	}
	return 0
}

// A RejectError is the error of Connect if the peer rejected the request.
type RejectError struct {
	Peer Addr
	Data []byte // the peer's private data, a copy
}

// Error returns the peer's name and its private data, which by convention is a sentence.
func (e *RejectError) Error() string {
	return fmt.Sprintf("connect to %s: rejected by peer: %q", e.Peer, e.Data)
}

// Unwrap returns ErrConnRefused.
func (e *RejectError) Unwrap() error { return ErrConnRefused }
