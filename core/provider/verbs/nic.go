// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
	"mori/core/provider/verbs/nics"
	"mori/native/verbs"
)

// A nic is a port of an open device.
type nic struct {
	name  string
	port  int
	index int // its number among equal hosts; see Settings.Indices
	want  int // Settings.GIDIndex
	why   string
	attr  verbs.DeviceAttr
	link  verbs.PortAttr
	ctx   verbs.Context
	pd    verbs.PD

	log    *slog.Logger
	events *os.File // a duplicate of the event descriptor; closing it ends the goroutine of watch
	over   sync.WaitGroup
	dead   atomic.Bool // it reports no more completions

	mu    sync.Mutex
	rails map[*rail]struct{} // rails to notify of device events
}

// openNIC opens "name" or "name:port".
func openNIC(device string, s *Settings, log *slog.Logger) (n *nic, err error) {
	name, port, err := splitPort(device)
	if err != nil {
		return nil, err
	}
	ctx, err := verbs.Open(name)
	if err != nil {
		return nil, err
	}
	made := &nic{name: name, port: port, want: s.GIDIndex, ctx: ctx, log: log, rails: map[*rail]struct{}{}}
	n = made
	defer func() {
		if err != nil { // n may be nil by now
			n, err = nil, errors.Join(fmt.Errorf("use RDMA device %s: %w", device, err), made.close())
		}
	}()
	if n.attr, err = ctx.Query(); err != nil {
		return nil, err
	}
	if err := n.choosePort(); err != nil {
		return nil, err
	}
	if _, err := n.address(nil); err != nil {
		return nil, err
	}
	if n.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	if s.NoEvents {
		return n, nil
	}
	return n, n.watch()
}

// choosePort chooses the named port, or else the first active one.
func (n *nic) choosePort() error {
	first, last := 1, n.attr.Ports
	if n.port != 0 {
		first, last = n.port, n.port
	}
	if last > n.attr.Ports {
		return fmt.Errorf("port %d of %d: %w", n.port, n.attr.Ports, fabric.ErrInvalid)
	}
	var state string
	for p := first; p <= last; p++ {
		link, err := n.ctx.Port(p)
		if err != nil {
			return err
		}
		if link.State == verbs.PortActive {
			n.port, n.link = p, link
			return nil
		}
		state = fmt.Sprintf("port %d is %v", p, link.State)
	}
	return fmt.Errorf("no active port (%s): is its cable connected, and its network interface up?: %w", state, fabric.ErrNoData)
}

// address returns the GID that peers send to. GIDs change with the addresses of the network
// interface, so each rail queries it. If the peer's GID is known, address prefers one of the same
// family, because IPv4 does not reach IPv6.
func (n *nic) address(peer *[16]byte) (verbs.GIDEntry, error) {
	table, err := n.ctx.GIDs(n.port)
	if err != nil || len(table) == 0 && n.link.LinkLayer != verbs.LinkEthernet { // InfiniBand has LIDs
		return verbs.GIDEntry{}, err
	}
	return nics.ChooseGIDLike(table, n.want, peer)
}

// up returns nil if the port is active.
func (n *nic) up() error {
	link, err := n.ctx.Port(n.port)
	if err != nil {
		return fmt.Errorf("port %d of %s: %w", n.port, n.name, err)
	}
	if link.State != verbs.PortActive {
		return fmt.Errorf("port %d of %s is %v: %w", n.port, n.name, link.State, fabric.ErrNoData)
	}
	return nil
}

// watch reads the device's events.
func (n *nic) watch() error {
	fd, err := unix.FcntlInt(uintptr(n.ctx.AsyncFD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("watch its events: %w", err)
	}
	n.events = os.NewFile(uintptr(fd), n.name+" events")
	raw, err := n.events.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch its events: %w", err)
	}
	n.over.Add(1)
	go func() {
		defer n.over.Done()
		for {
			var ev verbs.AsyncEvent
			var got error
			if raw.Read(func(uintptr) bool {
				ev, got = n.ctx.AsyncEvent()
				return !errors.Is(got, syscall.EAGAIN)
			}) != nil || got != nil {
				return // closed, or the device was removed, which its queue pairs report
			}
			n.happened(ev)
		}
	}()
	return nil
}

// happened handles a device event. Some events end the NIC's rails.
func (n *nic) happened(ev verbs.AsyncEvent) {
	var why string
	switch ev.Kind {
	case verbs.EventDeviceFatal:
		n.dead.Store(true)
		why = "the device failed or was removed"
	case verbs.EventPortErr:
		if ev.Port != n.port {
			return
		}
		why = fmt.Sprintf("port %d went down", ev.Port)
	case verbs.EventCQErr:
		why = "a completion queue overran"
	case verbs.EventGIDChange:
		n.addressesChanged()
		return
	case verbs.EventPortActive:
		n.log.Info("verbs: port is up", "device", n.name, "port", ev.Port)
		return
	default:
		n.log.Debug("verbs: event", "device", n.name, "port", ev.Port, "event", ev.Kind, "qp", ev.QPNum)
		return
	}
	n.log.Warn("verbs: "+why, "device", n.name)
	for _, r := range n.users() {
		r.fail(fmt.Errorf("RDMA device %s: %s: %w", n.name, why, fabric.ErrConnReset))
	}
}

// addressesChanged ends the rails whose local address was removed. What they send would be lost,
// and retries detect this only after seconds.
func (n *nic) addressesChanged() {
	table, err := n.ctx.GIDs(n.port)
	if err != nil {
		n.log.Debug("verbs: list the addresses of a port", "device", n.name, "error", err)
		return
	}
	for _, r := range n.users() {
		if r.gid.GID == ([16]byte{}) || slices.ContainsFunc(table, func(g verbs.GIDEntry) bool { return g.Index == r.gid.Index && g.GID == r.gid.GID }) {
			continue
		}
		n.log.Warn("verbs: an address was removed: did the network interface lose it?", "device", n.name, "port", n.port, "address", nics.GIDText(r.gid.GID))
		r.fail(fmt.Errorf("RDMA device %s: port %d lost its address %s (GID index %d): %w", n.name, n.port, nics.GIDText(r.gid.GID), r.gid.Index, fabric.ErrConnReset))
	}
}

// users returns the rails on the device.
func (n *nic) users() []*rail {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.rails))
}

func (n *nic) join(r *rail) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rails[r] = struct{}{}
}

func (n *nic) leave(r *rail) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.rails, r)
}

// close closes the device. Nothing may use it any more.
func (n *nic) close() error {
	var errs []error
	if n.events != nil {
		errs = append(errs, n.events.Close())
		n.over.Wait()
	}
	if n.pd != 0 {
		errs = append(errs, n.pd.Close())
	}
	return errors.Join(append(errs, n.ctx.Close())...)
}

// openNICs opens the usable devices that the settings allow. notes say why others are not usable.
// If none is, the error says so.
func openNICs(s *Settings, log *slog.Logger) (nics []*nic, notes []string, err error) {
	names := s.Devices
	if len(names) == 0 {
		all, err := verbs.Devices()
		if err != nil {
			return nil, nil, err
		}
		for _, d := range all {
			names = append(names, d.Name)
		}
	}
	for i, name := range names {
		n, err := openNIC(name, s, log)
		if err != nil {
			notes = append(notes, err.Error())
			continue
		}
		if n.index = i; i < len(s.Indices) {
			n.index = s.Indices[i]
		}
		if i < len(s.Why) {
			n.why = s.Why[i]
		}
		nics = append(nics, n)
	}
	if len(nics) == 0 {
		if len(notes) == 0 {
			notes = []string{"the host has no RDMA device"}
		}
		return nil, notes, fmt.Errorf("no RDMA device to use: %s: %w", strings.Join(notes, "; "), fabric.ErrNoData)
	}
	return nics, notes, nil
}
