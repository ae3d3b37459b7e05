// SPDX-License-Identifier: MIT

package stream

import (
	"net"
	"testing"
	"time"

	"mori/core/fabric"
)

// TestFirstFramesAreAnsweredOnEveryLink has a plain peer read on a link other than the first as soon as it is there, many times: the
// frame waits in the socket while the endpoint is being connected.
func TestFirstFramesAreAnsweredOnEveryLink(t *testing.T) {
	r := newRig(t, nil)
	_, key := r.share(4096)
	get := frame(header{kind: kindRead, ticket: 5, count: 1, length: 8, region: key.ID, secret: key.Secret}, []fabric.RSeg{{Len: 8}}, nil)
	for i := range 200 {
		var conns [2]net.Conn
		for link := range conns {
			c, err := net.Dial("tcp", string(r.ln.Addr()))
			r.must(err)
			r.must(c.SetDeadline(time.Now().Add(testDeadline)))
			h := hello{min: protocolVersion, max: protocolVersion, link: uint8(link), links: 2, nonce: [16]byte{byte(i), 9}, tx: 8}
			_, err = c.Write(h.append(nil))
			r.must(err)
			conns[link] = c
		}
		_, err := conns[1].Write(get)
		r.must(err)
		req, err := r.ln.Accept(r.ctx)
		r.must(err)
		ep := r.endpoint()
		r.must(ep.Accept(r.ctx, req, nil))
		if h, _ := readFrame(t, conns[1]); h.kind != kindReply || h.ticket != 5 {
			t.Fatalf("%v frame for %d", h.kind, h.ticket)
		}
		r.event(fabric.EventConnected)
		closeAll(conns[:])
		r.event(fabric.EventShutdown)
		r.must(ep.Close())
	}
}
