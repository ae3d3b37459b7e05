// SPDX-License-Identifier: MIT

package transport_test

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"mori/core"
	"mori/core/fabric"
	"mori/io/internal/arrivals"
	"mori/io/internal/control"
	"mori/io/internal/control/controltest"
	"mori/io/internal/descriptor"
	"mori/io/internal/identity"
	"mori/io/internal/message"
	"mori/io/internal/transport"
)

// A host admits all engines and has no regions.
type host struct{}

func (host) Admits(identity.ID) error                       { return nil }
func (host) Knows(string) bool                              { return true }
func (host) Offer() ([]message.Endpoint, bool)              { return nil, true }
func (host) RegionSize(descriptor.RegionKey) (uint64, bool) { return 0, false }
func (host) Drop([]byte) bool                               { return false }
func (host) TakeTags(identity.ID, []message.Tag) int        { return 0 }

// A rig is a TCP transport on the loopback address, with its control server.
type rig struct {
	tr     *transport.Transport
	server *control.Server
	peer   *controltest.Caller
	eq     fabric.EQ
	info   *fabric.Info
	dom    fabric.Domain
}

func newRig(t *testing.T) *rig {
	t.Helper()
	signer, err := identity.NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	self := &control.Self{Key: "b", Incarnation: 1, Signer: signer, Log: slog.New(slog.DiscardHandler)}
	r := &rig{server: control.NewServer(self, host{}), peer: controltest.NewCaller(t, "a", 7, "b", "")}
	t.Cleanup(r.server.Close)
	if err := r.server.ListenTCP("127.0.0.1", 0); err != nil {
		t.Fatal(err)
	}
	registry, err := core.Registry(core.Options{Log: self.Log})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if r.tr, err = transport.Open(ctx, "tcp", transport.Config{Registry: registry, Host: "127.0.0.1", Server: r.server,
		Arrivals: arrivals.NewTable(func(identity.ID) bool { return true }), Log: self.Log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.tr.Close(); err != nil {
			t.Error(err)
		}
	})
	infos, err := registry.GetInfo(ctx, "", "", &fabric.Info{Provider: "tcp", EPType: fabric.EPMsg, Caps: fabric.CapMSG | fabric.CapRMA})
	if err != nil {
		t.Fatal(err)
	}
	r.info = infos[0]
	fab, err := registry.Open(ctx, r.info)
	if err != nil {
		t.Fatal(err)
	}
	if r.dom, err = fab.Domain(ctx, r.info); err != nil {
		t.Fatal(err)
	}
	if r.eq, err = fab.EQ(16); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = r.eq.Close(), r.dom.Close(), fab.Close() })
	return r
}

// greet returns a token from the control server.
func (r *rig) greet(t *testing.T) []byte {
	t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(r.server.Port())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return r.peer.Welcomed(t, c).Token
}

// connect opens a data connection with a ticket.
func (r *rig) connect(t *testing.T, ticket []byte) error {
	t.Helper()
	cq, err := r.dom.CQ(16)
	if err != nil {
		t.Fatal(err)
	}
	ep, err := r.dom.Endpoint(r.info)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ep.Close(), cq.Close() })
	for _, err := range []error{ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, true), ep.BindEQ(r.eq), ep.Enable()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err = ep.(fabric.Connector).Connect(ctx, r.tr.Addr(), ticket)
	return err
}

func TestAPeerConnectsWithATokenOfTheControlServer(t *testing.T) {
	r := newRig(t)
	if err := r.connect(t, []byte("made up")); err == nil || len(r.tr.Conns()) != 0 {
		t.Errorf("without a token: %v, %d connections", err, len(r.tr.Conns()))
	}
	token := r.greet(t)
	if err := r.connect(t, r.peer.Ticket(token, "shm")); err == nil {
		t.Error("a ticket for another transport is accepted")
	}
	token = r.greet(t)
	if err := r.connect(t, r.peer.Ticket(token, "tcp")); err != nil {
		t.Fatal(err)
	}
	all := r.tr.Conns()
	if len(all) != 1 || !all[0].OpenedWith(token) || all[0].OpenedWith(make([]byte, len(token))) {
		t.Fatalf("%d connections, want that of a, which its token finds", len(all))
	}
	if err := r.connect(t, r.peer.Ticket(token, "tcp")); err == nil {
		t.Error("a ticket is accepted twice")
	}
}

func TestDisconnectClosesTheConnectionsOfAnEngine(t *testing.T) {
	r := newRig(t)
	if err := r.connect(t, r.peer.Ticket(r.greet(t), "tcp")); err != nil {
		t.Fatal(err)
	}
	all := []*transport.Transport{r.tr}
	transport.Disconnect(all, func(who identity.ID) bool { return who.Key != "a" })
	if n := len(r.tr.Conns()); n != 1 {
		t.Fatalf("%d connections after others were disconnected, want 1", n)
	}
	transport.Disconnect(all, func(who identity.ID) bool { return who.Key == "a" })
	if n := len(r.tr.Conns()); n != 0 {
		t.Errorf("%d connections, want none", n)
	}
}

func TestATransportThatIsMissingIsNamed(t *testing.T) {
	if _, err := transport.Open(context.Background(), "nothing", transport.Config{Registry: fabric.NewRegistry()}); err == nil {
		t.Error("a provider that does not exist was opened")
	}
}
