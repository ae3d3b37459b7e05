// SPDX-License-Identifier: MIT

package mlx5

import (
	"errors"
	"fmt"
	"sync"
)

// A Device is an open NIC with one protection domain for all its queues and regions.
type Device struct {
	cmd  Cmd
	info Info
	caps Caps
	pd   uint32

	mu     sync.Mutex
	open   int // queues and regions
	closed bool
}

// Open opens the NIC of cmd. It takes ownership of cmd, also on errors; Device.Close closes cmd.
func Open(cmd Cmd) (*Device, error) {
	d := &Device{cmd: cmd}
	err := d.begin()
	if err != nil {
		return nil, errors.Join(err, cmd.Close())
	}
	return d, nil
}

func (d *Device) begin() (err error) {
	if d.info, err = d.cmd.Info(); err != nil {
		return fmt.Errorf("describe the NIC: %w", err)
	}
	if err = d.do(&QueryHCACap{Op: OpQueryHCACap, Mode: 1}, &d.caps, &d.caps.Reply); err != nil {
		return fmt.Errorf("open %s: %w", d.info.Name, err)
	}
	d.pd, err = d.make(&Simple{Op: OpAllocPD})
	if err != nil {
		return fmt.Errorf("open %s: %w", d.info.Name, err)
	}
	return nil
}

// Name returns the NIC's name.
func (d *Device) Name() string { return d.info.Name }

// Info describes the NIC and its ports at the time when it was opened.
func (d *Device) Info() Info { return d.info }

// Caps returns the NIC's limits.
func (d *Device) Caps() Caps { return d.caps }

// Close frees the protection domain and closes the Cmd. It returns an error while queues or regions
// are open.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil
	case d.open > 0:
		return fmt.Errorf("close %s: %d queues and regions are open: %w", d.info.Name, d.open, ErrArgument)
	}
	d.closed = true
	return errors.Join(d.simple(OpDeallocPD, d.pd), d.cmd.Close())
}

// hold counts an object of the device; release undoes it.
func (d *Device) hold() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%s: %w", d.info.Name, ErrClosed)
	}
	d.open++
	return nil
}

func (d *Device) release() {
	d.mu.Lock()
	d.open--
	d.mu.Unlock()
}

// do executes a command and decodes its reply, which begins with head.
func (d *Device) do(in, out Message, head *Reply) error {
	sent := Encode(in)
	answer := make([]byte, out.size())
	if err := d.cmd.Do(sent, answer); err != nil {
		return fmt.Errorf("%s: %w", OpName(OpOf(sent)), err)
	}
	if err := Decode(answer, out); err != nil {
		return err
	}
	if head.Status != StatusOK {
		return &CommandError{Op: OpOf(sent), Status: uint8(head.Status), Syndrome: head.Syndrome}
	}
	return nil
}

// make executes a command that makes an object, and returns its number.
func (d *Device) make(in Message) (uint32, error) {
	var r Reply
	err := d.do(in, &r, &r)
	return r.ID, err
}

// simple executes a command on one object.
func (d *Device) simple(op, id uint32) error {
	var r Reply
	return d.do(&Simple{Op: op, ID: id}, &r, &r)
}

// An undo is the list of functions that undo the steps of a failed construction, last first.
type undo []func() error

func (u undo) run() (err error) {
	for i := len(u) - 1; i >= 0; i-- {
		err = errors.Join(err, u[i]())
	}
	return err
}
