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

	"mori/core/config"
)

// Rank 0 of a run without an id listens on one of these ports, which are derived from the
// launcher's variables. They are below those that Linux gives to outgoing connections.
const (
	candidates                 = 16
	firstDerived, afterDerived = 10000, 32768
)

// ErrNotLaunched is the answer of JoinLaunched to a process that no known launcher started.
var ErrNotLaunched = errors.New("no launcher is recognised (torchrun, Ray Train, mpirun, srun): set " +
	config.BootstrapRank + ", " + config.BootstrapSize + " and " + config.BootstrapPlace)

// JoinLaunched joins all ranks that the launcher has started, by its variables alone. Each rank
// calls it equally often. Groups that one process joins at the same time need different names in
// Options.
func JoinLaunched(ctx context.Context, o Options) (Group, error) {
	l, ok, err := Launched()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, ErrNotLaunched
	}
	return l.join(ctx, o)
}

func (l Launch) join(ctx context.Context, o Options) (Group, error) {
	if strings.Contains(l.Place, "/") {
		path := l.Place
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
		p, err := l.plan(o.Name, config.Get(config.AuthSecret))
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

// plan derives the secret and the ports from variables that are alike for all ranks of the launch,
// and for no others. Two runs on one host may try each other's ports: their secrets differ, and
// they try the next.
func (l Launch) plan(name, auth string) (p plan, err error) {
	run := []string{"mori launched 1", strconv.Itoa(l.Size), name, strconv.Itoa(os.Getuid()), auth}
	oneHost := l.LocalSize == l.Size
	port := ""
	switch {
	case l.Place != "":
		if p.host, port, err = net.SplitHostPort(l.Place); err != nil {
			return p, err
		}
		run = append(run, l.Place) // and nothing that a launcher may set differently on each host
	case oneHost:
		p.host = "127.0.0.1"
	case l.Host != "":
		p.host = l.Host
	default:
		return p, fmt.Errorf("%s does not say on which host rank 0 of %d runs: set %s to host:port of rank 0 or to a path that all ranks see, "+
			"or exchange a unique id through MPI", l.By, l.Size, config.BootstrapPlace)
	}
	if l.Place == "" {
		which, err := l.which()
		if err != nil {
			return p, fmt.Errorf("%s does not tell which run this is: %w: set %s", l.By, err, config.BootstrapPlace)
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

// which identifies the launch among all others.
func (l Launch) which() ([]string, error) {
	if l.By == dialectHydra.by { // its variables are alike in all runs, so it is the process that starts the ranks of a host
		proxy, err := ancestor("hydra_pmi_prox")
		return []string{l.By, proxy}, err
	}
	for _, v := range l.run {
		if !strings.HasSuffix(v, "=") {
			return append([]string{l.By}, l.run...), nil
		}
	}
	return nil, fmt.Errorf("nothing is set of %s", strings.ReplaceAll(strings.Join(l.run, ", "), "=", ""))
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
	nics, _ := hostNICs()
	for _, n := range nics {
		if err == nil && slices.Contains(n.addrs, a.Unmap()) {
			return p.host
		}
	}
	return ""
}

// ancestor finds the process whose name starts with comm among those that started this one, and
// says which it is, uniquely on this host.
func ancestor(comm string) (string, error) {
	for pid := os.Getppid(); pid > 1; {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return "", err
		}
		// pid (comm) state ppid ...: comm may hold anything, so the last parenthesis counts. The start
		// time is the 20th after it.
		s := string(b)
		open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
		fields := strings.Fields(s[end+1:])
		if open < 0 || end < open || len(fields) < 20 {
			return "", fmt.Errorf("/proc/%d/stat is malformed", pid)
		}
		if strings.HasPrefix(s[open+1:end], comm) {
			return fmt.Sprintf("%s %d %s", comm, pid, fields[19]), nil
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("no process above this one is %s", comm)
}
