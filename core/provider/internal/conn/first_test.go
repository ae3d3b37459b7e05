// SPDX-License-Identifier: MIT

package conn

import (
	"net"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

// TestFirstFramesAreAnsweredOnEveryLink lets a plain peer read on a link other than the first, as
// early as possible, many times. The frame waits in the socket while the endpoint is being
// connected.
func TestFirstFramesAreAnsweredOnEveryLink(t *testing.T) {
	r := newRig(t, nil)
	_, key := r.share(4096)
	get := encode(frame.Header{Kind: frame.KindRead, Ticket: 5, Count: 1, Length: 8, Region: key.ID, Secret: key.Secret}, []fabric.RSeg{{Len: 8}}, nil)
	for i := range 200 {
		var conns [2]net.Conn
		for link := range conns {
			c, err := net.Dial("tcp", string(r.ln.Addr()))
			r.must(err)
			r.must(c.SetDeadline(time.Now().Add(testDeadline)))
			h := frame.Handshake{Min: frame.Version, Max: frame.Version, Link: uint8(link), Links: 2, Nonce: [16]byte{byte(i), 9}, Tx: 8}
			_, err = c.Write(h.Append(nil))
			r.must(err)
			conns[link] = c
		}
		_, err := conns[1].Write(get)
		r.must(err)
		req, err := r.ln.Accept(r.ctx)
		r.must(err)
		ep := r.endpoint()
		r.must(ep.Accept(r.ctx, req, nil))
		if h, _ := readFrame(t, conns[1]); h.Kind != frame.KindReply || h.Ticket != 5 {
			t.Fatalf("%v frame for %d", h.Kind, h.Ticket)
		}
		r.event(fabric.EventConnected)
		for _, c := range conns {
			_ = c.Close()
		}
		r.event(fabric.EventShutdown)
		r.must(ep.Close())
	}
}
