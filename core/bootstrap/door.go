// SPDX-License-Identifier: MIT

package bootstrap

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Limits on strangers: the number of connections in the handshake, of which a new one evicts the
// oldest, and the time for each.
const (
	maxHandshakes = 512
	handshakeTime = 5 * time.Second
)

// A door accepts connections and runs the handshake on them.
type door struct {
	listener net.Listener
	secret   [secretSize]byte
	enter    func(ticket, *net.TCPConn) // owns the connection

	wait sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	waiting []net.Conn // in the handshake, oldest first
}

func openDoor(l net.Listener, secret [secretSize]byte, enter func(ticket, *net.TCPConn)) *door {
	d := &door{listener: l, secret: secret, enter: enter}
	d.wait.Add(1)
	go d.accept()
	return d
}

func (d *door) accept() {
	defer d.wait.Done()
	for {
		c, err := d.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // for example out of descriptors: that may pass
			continue
		}
		if d.queue(c) {
			d.wait.Add(1)
			go d.handshake(c)
		}
	}
}

// queue adds c to the connections in the handshake.
func (d *door) queue(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = c.Close()
		return false
	}
	if len(d.waiting) >= maxHandshakes {
		_ = d.waiting[0].Close()
		d.waiting = d.waiting[1:]
	}
	d.waiting = append(d.waiting, c)
	return true
}

// unqueue removes c, and reports whether it was not evicted.
func (d *door) unqueue(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, w := range d.waiting {
		if w == c {
			d.waiting = append(d.waiting[:i], d.waiting[i+1:]...)
			return !d.closed
		}
	}
	return false
}

func (d *door) handshake(c net.Conn) {
	defer d.wait.Done()
	err := c.SetDeadline(time.Now().Add(handshakeTime))
	var t ticket
	if err == nil {
		t, err = acceptHandshake(c, d.secret)
	}
	if wanted := d.unqueue(c); err != nil || !wanted {
		_ = c.Close()
		return
	}
	d.enter(t, c.(*net.TCPConn))
}

// close stops listening, ends every handshake, and waits for both.
func (d *door) close() {
	d.mu.Lock()
	d.closed = true
	for _, c := range d.waiting {
		_ = c.Close()
	}
	d.mu.Unlock()
	_ = d.listener.Close()
	d.wait.Wait()
}
