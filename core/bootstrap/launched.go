// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"mori/core/bootstrap/iface"
	"mori/core/bootstrap/launcher"
	"mori/core/config"
)

// Rank 0 of a run without an id listens on one of these ports, which are derived from the
// launcher's variables. They are below those that Linux gives to outgoing connections.
const (
	candidates                 = 16
	firstDerived, afterDerived = 10000, 32768
)

// ErrNotLaunched is the answer of JoinLaunched to a process that no known launcher started.
var ErrNotLaunched = errors.New("no known launcher started this process (torchrun, Ray Train, mpirun, srun): set " +
	config.BootstrapRank + ", " + config.BootstrapSize + " and " + config.BootstrapPlace)

// JoinLaunched joins all ranks that the launcher has started, by its variables alone. Each rank
// calls it equally often. Groups that one process joins at the same time need different names in
// Options.
func JoinLaunched(ctx context.Context, o Options) (Group, error) {
	l, ok, err := launcher.Find()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, ErrNotLaunched
	}
	return joinLaunch(ctx, l, o)
}

func joinLaunch(ctx context.Context, l launcher.Launch, o Options) (Group, error) {
	if strings.Contains(l.Rendezvous, "/") {
		path := l.Rendezvous
		if o.Name != "" {
			path += "." + o.Name
		}
		return JoinFile(ctx, path, l.Rank, l.Size, o)
	}
	return wrapJoin(l.Rank, l.Size, func() (*member, error) {
		o, err := o.complete()
		if err != nil {
			return nil, err
		}
		p, err := planOf(l, o.Name, config.Get(config.AuthSecret))
		if err != nil {
			return nil, err
		}
		if l.Rank == 0 {
			return host(ctx, p.secret, l.Size, o, p.listen)
		}
		return join(ctx, l.Rank, l.Size, o, func() ([]target, error) { return p.targets(), nil })
	})
}

// A plan is how the ranks of a launch find rank 0.
type plan struct {
	secret [secretSize]byte
	host   string
	ports  []int
}

// planOf derives the secret and the ports from variables that are alike for all ranks of the
// launch, and for no others. Two runs on one host may try each other's ports: their secrets differ,
// and they try the next.
func planOf(l launcher.Launch, name, auth string) (p plan, err error) {
	run := []string{"mori launched 1", strconv.Itoa(l.Size), name, strconv.Itoa(os.Getuid()), auth}
	oneHost := l.LocalSize == l.Size
	port := ""
	switch {
	case l.Rendezvous != "":
		if p.host, port, err = net.SplitHostPort(l.Rendezvous); err != nil {
			return p, err
		}
		run = append(run, l.Rendezvous) // and nothing that a launcher may set differently on each host
	case oneHost:
		p.host = "127.0.0.1"
	case l.Host != "":
		p.host = l.Host
	default:
		return p, fmt.Errorf("%s does not say on which host rank 0 of %d runs: set %s to host:port of rank 0 or to a path that all ranks see, "+
			"or exchange a unique id through MPI", l.By, l.Size, config.BootstrapPlace)
	}
	if l.Rendezvous == "" {
		which, err := l.Run()
		if err != nil {
			return p, fmt.Errorf("%s does not say which run this is: %w: set %s", l.By, err, config.BootstrapPlace)
		}
		run = append(run, which...)
	}
	h := sha256.New()
	for _, s := range run {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	p.secret = [secretSize]byte(h.Sum(nil))
	if port != "" {
		n, err := strconv.Atoi(port)
		p.ports = []int{n}
		return p, err
	}
	for i := range candidates {
		b := prove(p.secret, "port "+strconv.Itoa(i))
		p.ports = append(p.ports, firstDerived+int(binary.LittleEndian.Uint32(b[:])%(afterDerived-firstDerived)))
	}
	return p, nil
}

func (p plan) targets() (all []target) {
	for _, port := range p.ports {
		all = append(all, target{addr: net.JoinHostPort(p.host, strconv.Itoa(port)), secret: p.secret})
	}
	return all
}

// listen takes the first port that is free.
func (p plan) listen(ctx context.Context) (net.Listener, error) {
	at := p.bindAddr()
	var errs []error
	for _, port := range p.ports {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", net.JoinHostPort(at, strconv.Itoa(port)))
		if err == nil {
			return l, nil
		}
		if errs = append(errs, err); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// bindAddr is where rank 0 listens: an address of this host, if the launcher names one. A name may
// well mean loopback here and something else for others, and an address may be translated, so for
// these it is all addresses: who connects must know the secret anyway.
func (p plan) bindAddr() string {
	a, err := netip.ParseAddr(p.host)
	if err == nil && a.IsLoopback() || p.host == "localhost" {
		return p.host
	}
	nics, _ := iface.All()
	for _, n := range nics {
		if err == nil && slices.Contains(n.Addrs, a.Unmap()) {
			return p.host
		}
	}
	return ""
}
