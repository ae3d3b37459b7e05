// SPDX-License-Identifier: MIT

package pybind

// #include <stdlib.h>
// extern char **environ; // of the C library
// #include "fast.h"
import "C"

import (
	"fmt"
	"os"
	"unsafe"

	"mori/core/config"
	"mori/io"
	"mori/pybind/handle"
)

func init() {
	config.SetLookup(func(name string) (string, bool) {
		c := C.CString(name)
		defer C.free(unsafe.Pointer(c))
		v := C.getenv(c)
		if v == nil {
			return "", false
		}
		return C.GoString(v), true
	})
	config.SetEnviron(func() []string {
		var out []string
		for at := C.environ; at != nil && *at != nil; at = (**C.char)(unsafe.Add(unsafe.Pointer(at), unsafe.Sizeof(*at))) {
			out = append(out, C.GoString(*at))
		}
		return out
	})
}

// InstallFast creates the module of hot functions (fast.c) under the given name in sys.modules.
func InstallFast(name string) (n int, err error) {
	defer guard(&err)
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	if C.mori_install_fast(c) != 0 {
		return 0, fmt.Errorf("create module %s", name)
	}
	return 1, nil
}

// statuses holds the statuses that Python refers to.
var statuses = handle.Table[*io.Status]{What: "status"}

// give passes a status to C: an id, and the address of its word, which is valid until
// moriStatusRelease.
func give(s *io.Status, out *C.mori_status_ref) {
	out.id = C.uint64_t(statuses.Add(s))
	out.word = C.uint64_t(s.Word().Addr())
}

func bytesAt(addr uint64, n int) []byte {
	if n <= 0 {
		return nil
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

// rescue recovers a panic, so that it does not end the process. The call then returns moriPanicked.
func rescue(answer *C.int) {
	if r := recover(); r != nil {
		fmt.Fprintf(os.Stderr, "mori: panic in a hot call: %v\n", r)
		*answer = C.MORI_PANICKED
	}
}

//export moriStatusNew
func moriStatusNew(out *C.mori_status_ref) (answer C.int) {
	defer rescue(&answer)
	give(io.NewStatus(), out)
	return C.MORI_OK
}

//export moriStatusRelease
func moriStatusRelease(id C.uint64_t) { statuses.Remove(uint64(id)) }

//export moriStatusUpdate
func moriStatusUpdate(id C.uint64_t, what C.int, code C.uint32_t, msg *C.char, n C.int64_t) (answer C.int) {
	defer rescue(&answer)
	s, err := statuses.Get(uint64(id))
	if err != nil {
		return C.MORI_STALE
	}
	text := C.GoStringN(msg, C.int(n))
	switch what {
	case C.MORI_UPDATE:
		s.Update(io.StatusCode(code), text)
	case C.MORI_SET_CODE:
		s.SetCode(io.StatusCode(code))
	case C.MORI_SET_MESSAGE:
		s.SetMessage(text)
	}
	return C.MORI_OK
}

// moriStatusMessage returns the status's text in memory that C frees.
//
//export moriStatusMessage
func moriStatusMessage(id C.uint64_t) *C.char {
	s, err := statuses.Get(uint64(id))
	if err != nil {
		return nil
	}
	return C.CString(s.Message())
}

//export moriAllocUID
func moriAllocUID(id C.uint64_t, uid *C.uint64_t) (answer C.int) {
	defer rescue(&answer)
	e, err := engines.Get(uint64(id))
	if err != nil {
		return C.MORI_STALE
	}
	*uid = C.uint64_t(e.AllocateTransferUID())
	return C.MORI_OK
}

//export moriPopInbound
func moriPopInbound(id C.uint64_t, key *C.char, n C.int64_t, uid C.uint64_t) (answer C.int) {
	defer rescue(&answer)
	e, err := engines.Get(uint64(id))
	if err != nil {
		return C.MORI_STALE
	}
	if e.PopInbound(C.GoStringN(key, C.int(n)), uint64(uid)) {
		return 1
	}
	return 0
}
