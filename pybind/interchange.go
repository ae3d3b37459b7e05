// SPDX-License-Identifier: MIT

package pybind

import (
	"context"
	"encoding/base64"
	"fmt"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/interchange"
	"mori/pybind/handle"
)

// An exchange is one side of the interchange, with the results of its kernels.
type exchange struct {
	*interchange.Side
	outcome atomic.Pointer[interchange.Outcome]
}

var exchanges = handle.Table[*exchange]{What: "interchange"}

// InterchangeOpen creates one side of the GPU data interchange. limit is in seconds, 0 for the
// default.
func InterchangeOpen(deviceName string, gpu string, limit float64) (id uint64, err error) {
	defer guard(&err)
	s, err := interchange.Open(interchange.Options{Device: deviceName, GPU: gpu, Limit: time.Duration(limit * float64(time.Second))})
	if err != nil {
		return 0, err
	}
	return exchanges.Add(&exchange{Side: s}), nil
}

// InterchangeGPU describes the device that runs a side's kernels.
func InterchangeGPU(id uint64) (text string, err error) {
	defer guard(&err)
	s, err := exchanges.Get(id)
	if err != nil {
		return "", err
	}
	return s.GPU(), nil
}

// InterchangeDiscover returns the devices and their ports, as JSON.
func InterchangeDiscover(id uint64) (text string, err error) {
	defer guard(&err)
	s, err := exchanges.Get(id)
	if err != nil {
		return "", err
	}
	found, err := s.Discover()
	if err != nil {
		return "", err
	}
	return toJSON(found)
}

// InterchangeDevice opens a side's device and describes it.
func InterchangeDevice(id uint64) (text string, err error) {
	defer guard(&err)
	s, err := exchanges.Get(id)
	if err != nil {
		return "", err
	}
	return s.OpenDevice()
}

// InterchangeEndpoint creates a side's endpoint and returns {qpn, address} as JSON.
func InterchangeEndpoint(id uint64) (text string, err error) {
	defer guard(&err)
	s, err := exchanges.Get(id)
	if err != nil {
		return "", err
	}
	end, err := s.Endpoint()
	if err != nil {
		return "", err
	}
	return toJSON(end)
}

// InterchangeConnect connects a side to the address of the other side's endpoint.
func InterchangeConnect(id uint64, address string) (n int, err error) {
	defer guard(&err)
	return interchangeReceive(id, address, (*interchange.Side).Connect)
}

// InterchangeRegister allocates and registers a side's buffer and returns {addr, bytes, keys,
// shown} as JSON.
func InterchangeRegister(id uint64, nbytes uint64) (text string, err error) {
	defer guard(&err)
	s, err := exchanges.Get(id)
	if err != nil {
		return "", err
	}
	m, err := s.Register(nbytes)
	if err != nil {
		return "", err
	}
	return toJSON(m)
}

// InterchangeSetPeer gives a side the description of the other side's buffer: its `shown`.
func InterchangeSetPeer(id uint64, shown string) (n int, err error) {
	defer guard(&err)
	return interchangeReceive(id, shown, (*interchange.Side).SetPeer)
}

// interchangeReceive passes a side the bytes that the other side has sent, encoded as in JSON.
func interchangeReceive(id uint64, text string, step func(*interchange.Side, []byte) error) (int, error) {
	s, err := exchanges.Get(id)
	if err != nil {
		return 0, err
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return 0, fmt.Errorf("read the other side's description: %w: %w", err, fabric.ErrInvalid)
	}
	return 0, step(s.Side, b)
}

// InterchangeRun starts a side's kernel. JobResult: 0.
func InterchangeRun(id uint64, send bool, value int, rounds uint64) (job uint64, err error) {
	defer guard(&err)
	s, err := exchanges.Get(id)
	if err != nil {
		return 0, err
	}
	if value < 0 || value > 255 {
		return 0, coded("E_ARG", fmt.Errorf("fill with %d: a byte is 0 to 255", value))
	}
	var alone queue
	return alone.start(func(ctx context.Context) (_ uint64, err error) {
		defer guard(&err)
		out, err := s.Run(ctx, interchange.Work{Send: send, Value: uint8(value), Rounds: rounds})
		s.outcome.Store(&out)
		return 0, err
	}), nil
}

// InterchangeOutcome returns the results of the kernel of the last run: {rounds, ns, kernel} as
// JSON.
func InterchangeOutcome(id uint64) (text string, err error) {
	defer guard(&err)
	s, err := exchanges.Get(id)
	if err != nil {
		return "", err
	}
	out := s.outcome.Load()
	if out == nil {
		return "", coded("E_STATE", fmt.Errorf("no kernel has run"))
	}
	return toJSON(*out)
}

// InterchangeVerify starts to count, on a side's GPU, the bytes of its buffer that differ from
// value. JobResult: the number of bytes.
func InterchangeVerify(id uint64, value int) (job uint64, err error) {
	defer guard(&err)
	s, err := exchanges.Get(id)
	if err != nil {
		return 0, err
	}
	if value < 0 || value > 255 {
		return 0, coded("E_ARG", fmt.Errorf("search for %d: a byte is 0 to 255", value))
	}
	var alone queue
	return alone.start(func(ctx context.Context) (wrong uint64, err error) {
		defer guard(&err)
		return s.Verify(ctx, uint8(value))
	}), nil
}

// InterchangeClose closes a side. It ignores a handle that is already closed.
func InterchangeClose(id uint64) (n int, err error) {
	defer guard(&err)
	if s, ok := exchanges.Remove(id); ok {
		return 1, s.Close()
	}
	return 0, nil
}
