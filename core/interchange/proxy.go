// SPDX-License-Identifier: MIT

package interchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"mori/core"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/proxy"
	"mori/native/abi"
	kernels "mori/native/proxy"
)

// proxyLink is a ring that kernels post to, served over a provider of core/fabric.
type proxyLink struct {
	opts      Options
	processor processor
	provider  string

	registry *fabric.Registry
	port     *proxy.Port
	peerName fabric.Addr
	peer     proxy.Peer
	local    []proxy.Local
	words    block // the side's words, followed by its kernel's report
	queue    *proxy.Queue
	wrong    uint64
}

const (
	outcomeAt  = 1024
	gpuThreads = 256

	proxyModule   = "proxy_interchange"
	sendKernel    = "mori_proxy_interchange_send"
	receiveKernel = "mori_proxy_interchange_receive"
)

// hints are what a provider must have for the processor.
func (l *proxyLink) hints() *fabric.Info {
	h := &fabric.Info{Provider: l.provider, Caps: fabric.CapRMA | fabric.CapAtomic, EPType: fabric.EPRDM, Src: core.ListenAddr(l.provider, "")}
	if _, ok := l.processor.(*gpu); ok {
		h.Caps |= fabric.CapHMEM
		h.MRMode |= fabric.MRHMEM
	}
	return h
}

func (l *proxyLink) discover(ctx context.Context) (found []Found, err error) {
	if l.registry, err = core.Registry(core.Options{}); err != nil {
		return nil, err
	}
	for _, name := range l.registry.Names() {
		infos, err := l.registry.GetInfo(ctx, "", "", &fabric.Info{Provider: name, EPType: fabric.EPRDM})
		if err != nil {
			continue // it has nothing here
		}
		f := Found{Name: name}
		for _, in := range infos {
			f.Ports = append(f.Ports, fmt.Sprintf("%s of network %s", in.DomainName, in.FabricName))
		}
		found = append(found, f)
	}
	return found, nil
}

func (l *proxyLink) open(ctx context.Context) (string, error) {
	port, err := proxy.Open(ctx, l.registry, l.hints())
	if err != nil {
		return "", err
	}
	l.port = port
	return fmt.Sprintf("provider %s, device %s, a host proxy posts for the GPU", port.Info.Provider, port.Info.DomainName), nil
}

// numbers are given to proxy endpoints, as a NIC numbers its queue pairs.
var numbers atomic.Uint32

func (l *proxyLink) endpoint(context.Context) (End, error) {
	return End{Number: numbers.Add(1), Address: []byte(l.port.Name())}, nil
}

func (l *proxyLink) connect(address []byte) error {
	l.peerName = fabric.Addr(address)
	_, err := l.port.Reach(l.peerName, nil)
	return err
}

func (l *proxyLink) register(data block) (keys string, shown []byte, err error) {
	if l.words, err = l.processor.words(wordBytes); err != nil {
		return "", nil, err
	}
	var mine []proxy.Shown
	for _, b := range []block{data, l.words} {
		r, err := l.port.Register(b.buffer)
		if err != nil {
			return "", nil, err
		}
		l.local = append(l.local, proxy.Local{Buffer: b.buffer, Desc: r.Desc, Device: b.addr})
		mine = append(mine, proxy.Shown{Raw: r.Raw, Len: b.n, Host: b.buffer.Kind == fabric.MemHost})
	}
	shown, err = json.Marshal(mine)
	return fmt.Sprintf("key of %d bytes, descriptor %#x", len(mine[0].Raw), l.local[0].Desc), shown, err
}

func (l *proxyLink) setPeer(shown []byte) error {
	var theirs []proxy.Shown
	if err := readShown(shown, &theirs); err != nil {
		return err
	}
	if len(theirs) != len(l.local) || theirs[0].Len != l.local[0].Len {
		return fmt.Errorf("the peer's memory does not match this side's %d bytes: %w", l.local[0].Len, fabric.ErrInvalid)
	}
	peer, err := l.port.Reach(l.peerName, theirs)
	if err != nil {
		return err
	}
	// Before a kernel spins: at the first op, providers allocate what they need for GPU memory, and
	// drivers may make that wait for kernels.
	ctx, cancel := context.WithTimeout(context.Background(), l.opts.Limit)
	defer cancel()
	if err = l.port.Write(ctx, peer, l.local[0]); err != nil {
		return fmt.Errorf("write to the peer before the kernels start: %w", err)
	}
	if l.peer = peer; l.opts.bare {
		return nil
	}
	l.queue, err = proxy.New(proxy.Config{Port: l.port, Peers: []proxy.Peer{peer}, Local: l.local, Memory: l.processor.memory(),
		Slots: 1 << l.opts.Log, Wait: l.opts.Limit})
	if err != nil {
		return err
	}
	return l.opts.prepare(l.processor, proxyModule, sendKernel, receiveKernel)
}

func (l *proxyLink) view() View {
	mine := l.local[0]
	return View{Queue: l.queue.Device(), Proxy: true, Words: l.words.addr, Mine: abi.NICMemory{Addr: mine.Addr, Bytes: mine.Len}, Peer: abi.NICMemory{Bytes: mine.Len}, Limit: l.opts.Limit}
}

func (l *proxyLink) run(ctx context.Context, w Work) (Outcome, error) {
	side := abi.ProxyInterchangeSide{Queue: l.queue.Device(), Local: l.local[0].Addr, Bytes: l.local[0].Len, Words: l.words.addr,
		Rounds: w.Rounds, Value: uint32(w.Value), Outcome: l.words.addr + outcomeAt}
	name, onCPU := receiveKernel, kernels.Receive
	if w.Send {
		name, onCPU = sendKernel, kernels.Send
	}
	reported := &sys.Slice[abi.ProxyInterchangeOutcome](side.Outcome, 1)[0]
	*reported = abi.ProxyInterchangeOutcome{}
	var rounds abi.ProxyInterchangeOutcome
	k := kernel{function: name, args: new(device.Args).Struct(abi.Bytes(&side), 8), threads: gpuThreads, onCPU: func() error {
		rounds = onCPU(cpuThreads, side)
		return nil
	}}
	err := l.processor.run(ctx, k)
	if _, ok := l.processor.(*gpu); ok {
		rounds = *reported
	}
	l.wrong += rounds.Wrong
	out := Outcome{Rounds: rounds.Rounds, Nanoseconds: rounds.Nanoseconds, Kernel: name}
	if err == nil && rounds.Status != 0 {
		err = l.why(rounds.Status)
	}
	if err != nil {
		err = fmt.Errorf("%s after %d of %d rounds: %w", name, rounds.Rounds, w.Rounds, err)
	}
	return out, err
}

// why translates a kernel's status.
func (l *proxyLink) why(status uint32) error {
	if err := l.queue.Err(0); err != nil {
		return err
	}
	switch status {
	case abi.ProxyTimeout:
		if r, ok := l.queue.Report(); ok {
			return fmt.Errorf("it waited %v for command %d, and %d had completed: %w", l.opts.Limit, r.Ticket, r.Ended, fabric.ErrTimeout)
		}
		return fmt.Errorf("it waited %v for the peer: %w", l.opts.Limit, fabric.ErrTimeout)
	case abi.ProxyStopped:
		return proxy.ErrClosed
	}
	return fabric.Errno(status)
}

// verify returns the receiving kernel's count: it checks every byte of every round.
func (l *proxyLink) verify(context.Context, uint8) (wrong uint64, err error) { return l.wrong, nil }

func (l *proxyLink) close() error {
	var errs []error
	if l.port != nil {
		errs = append(errs, l.port.Close())
	}
	if l.queue != nil {
		errs = append(errs, l.queue.Close())
	}
	return errors.Join(append(errs, l.words.close())...)
}

var _ link = (*proxyLink)(nil)
