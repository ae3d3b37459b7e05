// SPDX-License-Identifier: MIT

package interchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/mlx5"
	"mori/core/mlx5/emu"
	"mori/core/mlx5/nics"
	kernels "mori/native/nic"
)

// nicLink is a queue pair that kernels drive by themselves.
type nicLink struct {
	opts  Options
	place place
	name  string

	emulated *emu.NIC
	device   *mlx5.Device
	rings    block
	queue    *mlx5.Queue
	region   *mlx5.Region
	seen     block          // of the queue as kernels see it, in the GPU's memory
	words    block          // what kernels tell
	window   *device.Window // the emulated NIC's
	data     block
	peer     mlx5.MemoryView
	receiver receiver
	undo     []func() error
}

const nicModule = "nic_mlx5"

func (l *nicLink) later(f func() error) { l.undo = append(l.undo, f) }

// discover asks the NIC. The emulated one is there as soon as somebody asks for it.
func (l *nicLink) discover(context.Context) ([]Found, error) {
	cmd, emulated, err := nics.Open(l.name, l.doorbells)
	if err != nil {
		return nil, err
	}
	l.emulated = emulated
	if l.device, err = mlx5.Open(cmd); err != nil {
		return nil, err
	}
	l.later(l.device.Close)
	info := l.device.Info()
	f := Found{Name: info.Name}
	for i, p := range info.Ports {
		state, layer := "down", "InfiniBand"
		if p.Active {
			state = "active"
		}
		if p.Ethernet {
			layer = "Ethernet"
		}
		f.Ports = append(f.Ports, fmt.Sprintf("%d: %s, %s, MTU %d, GID %v", i+1, state, layer, p.MTU, p.GID))
	}
	return []Found{f}, nil
}

// doorbells are where the place's kernels can ring them.
func (l *nicLink) doorbells(n int) (addr uint64, free func() error, err error) {
	b, err := l.place.words(uint64(n))
	return b.addr, b.free, err
}

func (l *nicLink) open(context.Context) (string, error) {
	c := l.device.Caps()
	text := fmt.Sprintf("device %s: queue pairs of up to 1<<%d blocks, completion queues of up to 1<<%d", l.device.Name(), c.LogMaxQPSize, c.LogMaxCQSize)
	if l.device.Info().Emulated {
		text += ", emulated"
	}
	return text, nil
}

func (l *nicLink) endpoint(context.Context) (End, error) {
	cfg := mlx5.QueueConfig{SQLog: uint32(l.opts.Log), RQLog: uint32(l.opts.Receives)}
	var err error
	if l.rings, err = l.place.words(cfg.Bytes()); err != nil {
		return End{}, err
	}
	l.later(l.rings.close)
	cfg.Addr = l.rings.addr
	if l.queue, err = l.device.NewQueue(cfg); err != nil {
		return End{}, err
	}
	l.later(l.queue.Close)
	l.receiver.view = l.queue.ReceiveView()
	address := make([]byte, mlx5.RemoteEndBytes)
	l.queue.End().Put(address)
	return End{l.queue.QPN(), address}, nil
}

func (l *nicLink) connect(address []byte) error {
	var end mlx5.RemoteEnd
	if err := end.Parse(address); err != nil {
		return fmt.Errorf("read the peer's end: %w: %w", err, fabric.ErrInvalid)
	}
	if err := l.queue.Connect(end, nics.Path(l.emulated)); err != nil {
		return err
	}
	view := l.queue.View()
	b := make([]byte, mlx5.QueueViewBytes)
	view.Put(b)
	var err error
	if l.seen, err = l.place.data(mlx5.QueueViewBytes); err != nil {
		return err
	}
	l.later(l.seen.close)
	return l.place.fill(l.seen, b)
}

func (l *nicLink) register(data block) (keys string, shown []byte, err error) {
	l.data = data
	if g, ok := l.place.(*gpu); ok && l.emulated != nil {
		if l.window, err = g.d.NewWindow(data.addr, data.n); err != nil {
			return "", nil, err
		}
		l.emulated.AddMemory(data.addr, data.n, l.window)
	}
	l.region, err = l.device.Register(data.addr, data.n, mlx5.AccessAll)
	if err != nil {
		return "", nil, err
	}
	l.later(l.region.Close)
	v := l.region.View()
	shown, err = json.Marshal(v)
	return fmt.Sprintf("lkey %#x, rkey %#x", v.LKey, v.RKey), shown, err
}

func (l *nicLink) meet(shown []byte) (err error) {
	if err := json.Unmarshal(shown, &l.peer); err != nil {
		return fmt.Errorf("read the peer's memory: %w: %w", err, fabric.ErrInvalid)
	}
	if l.peer.Bytes != l.data.n {
		return fmt.Errorf("the peer's memory has %d bytes, and ours %d: %w", l.peer.Bytes, l.data.n, fabric.ErrInvalid)
	}
	if l.words, err = l.place.words(wordBytes); err != nil {
		return err
	}
	l.later(l.words.close)
	return l.opts.prepare(l.place, nicModule, kernels.Interchange{}.Kernel(), kernels.Verify{}.Kernel())
}

func (l *nicLink) view() View {
	return View{Queue: l.seen.addr, Words: l.words.addr, Mine: kernels.Memory(l.region.View()), Peer: kernels.Memory(l.peer), Limit: l.opts.Limit}
}

// run: only the sender's side has a kernel, for a NIC writes to the receiver's memory without its help.
func (l *nicLink) run(ctx context.Context, w Work) (Outcome, error) {
	if !w.Send {
		return Outcome{Rounds: w.Rounds}, nil
	}
	found, err := l.launch(ctx, kernels.Interchange{Queue: l.seen.addr, Outcome: l.words.addr, Limit: l.opts.Limit, Mine: kernels.Memory(l.region.View()),
		Peer: kernels.Memory(l.peer), Bytes: l.data.n, Rounds: w.Rounds, Value: w.Value}, l.block())
	return Outcome{Rounds: found.Done, Nanoseconds: found.Nanoseconds, Kernel: "mori_nic_interchange"}, err
}

func (l *nicLink) verify(ctx context.Context, value uint8) (wrong uint64, err error) {
	found, err := l.launch(ctx, kernels.Verify{Memory: l.data.addr, Outcome: l.words.addr, Bytes: l.data.n, Value: value}, l.block())
	return found.Wrong, err
}

// block is one block of as many threads as the place likes.
func (l *nicLink) block() kernels.Grid {
	if _, ok := l.place.(*gpu); ok {
		return kernels.Grid{Blocks: 1, Threads: gpuThreads}
	}
	return kernels.Grid{Blocks: 1, Threads: cpuThreads}
}

func (l *nicLink) launch(ctx context.Context, args kernels.Args, g kernels.Grid) (found kernels.Outcome, err error) {
	told := sys.Bytes(l.words.addr, kernels.OutcomeBytes)
	clear(told)
	k := kernel{function: args.Kernel(), args: args.Append(nil), blocks: g.Blocks, threads: g.Threads, onCPU: func() (err error) {
		found, err = kernels.Run(g, args)
		return err
	}}
	err = l.place.run(ctx, k)
	if _, ok := l.place.(*gpu); ok {
		found = kernels.ParseOutcome(told)
	}
	if err == nil {
		err = found.Err()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", args.Kernel(), err)
	}
	return found, err
}

func (l *nicLink) close() error {
	var errs []error
	for i := len(l.undo) - 1; i >= 0; i-- {
		errs = append(errs, l.undo[i]())
	}
	if l.window != nil { // after the NIC, whose thread copies
		errs = append(errs, l.window.Close())
		l.window = nil
	}
	if l.emulated != nil {
		for _, v := range l.emulated.Violations() {
			errs = append(errs, fmt.Errorf("%s was used in a way that no NIC takes: %s", l.name, v))
		}
	}
	l.undo = nil
	return errors.Join(errs...)
}

var _ link = (*nicLink)(nil)
