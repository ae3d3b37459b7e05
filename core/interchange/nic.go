// SPDX-License-Identifier: MIT

package interchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/gpunic"
	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
	"mori/native/abi"
	kernels "mori/native/nic"
)

// nicLink is a queue pair that kernels drive directly.
type nicLink struct {
	opts      Options
	processor processor
	name      string
	module    string // of the kernels that drive the NIC's queues

	nic      *gpunic.NIC
	queue    *gpunic.Queue
	mine     abi.NICMemory
	seen     block // the queue's view, in the GPU's memory
	words    block // reports of kernels
	data     block
	peer     abi.NICMemory
	receiver receiver
	undo     []func() error // freed after the NIC is closed
}

func (l *nicLink) later(f func() error) { l.undo = append(l.undo, f) }

// nicEnvironment is a processor whose kernels drive a NIC.
type nicEnvironment struct{ processor processor }

func (e nicEnvironment) Words(n uint64) (addr uint64, free func() error, err error) {
	b, err := e.processor.words(n)
	return b.addr, b.free, err
}

func (e nicEnvironment) Window(addr, n uint64) (gpunic.Window, error) {
	if g, ok := e.processor.(*gpu); ok {
		return g.d.NewWindow(addr, n)
	}
	return nil, nil
}

// discover opens the NIC and describes it.
func (l *nicLink) discover(context.Context) (_ []Found, err error) {
	if l.nic, err = gpunic.Open(l.name, nicEnvironment{l.processor}); err != nil {
		return nil, err
	}
	f := Found{Name: l.nic.Name()}
	for i, p := range l.nic.Info().Ports {
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

func (l *nicLink) open(context.Context) (string, error) {
	c := l.nic.Caps()
	text := fmt.Sprintf("device %s: queue pairs of up to 1<<%d blocks, completion queues of up to 1<<%d", l.nic.Name(), c.LogMaxQPSize, c.LogMaxCQSize)
	if l.nic.Info().Emulated {
		text += ", emulated"
	}
	return text, nil
}

func (l *nicLink) endpoint(context.Context) (_ End, err error) {
	cfg := gpunic.QueueConfig{Log: uint32(l.opts.Log), ReceivesLog: uint32(l.opts.Receives)}
	if l.queue, err = l.nic.NewQueue(cfg); err != nil {
		return End{}, err
	}
	l.receiver.view = l.queue.ReceiveView()
	return End{l.queue.QPN(), l.queue.End()}, nil
}

func (l *nicLink) connect(address []byte) (err error) {
	if err := l.queue.Connect(address); errors.Is(err, mlx5.ErrFormat) {
		return fmt.Errorf("%w: %w", err, fabric.ErrInvalid)
	} else if err != nil {
		return err
	}
	view := l.queue.View()
	if l.seen, err = l.processor.data(uint64(len(view))); err != nil {
		return err
	}
	l.later(l.seen.close)
	return l.processor.fill(l.seen, view)
}

func (l *nicLink) register(data block) (keys string, shown []byte, err error) {
	l.data = data
	if l.mine, err = l.nic.Register(data.addr, data.n, mlx5.AccessAll); err != nil {
		return "", nil, err
	}
	shown, err = json.Marshal(l.mine)
	return fmt.Sprintf("lkey %#x, rkey %#x", l.mine.LKey, l.mine.RKey), shown, err
}

func (l *nicLink) setPeer(shown []byte) (err error) {
	if err := readShown(shown, &l.peer); err != nil {
		return err
	}
	if l.peer.Bytes != l.data.n {
		return fmt.Errorf("the peer's memory has %d bytes, this side's %d: %w", l.peer.Bytes, l.data.n, fabric.ErrInvalid)
	}
	if l.words, err = l.processor.words(wordBytes); err != nil {
		return err
	}
	l.later(l.words.close)
	return l.opts.prepare(l.processor, l.module, kernels.Interchange{}.Kernel(), kernels.Verify{}.Kernel())
}

func (l *nicLink) view() View {
	return View{Queue: l.seen.addr, Words: l.words.addr, Mine: l.mine, Peer: l.peer, Limit: l.opts.Limit}
}

// run runs a kernel only on the sender's side, because a NIC writes to the receiver's memory
// without it.
func (l *nicLink) run(ctx context.Context, w Work) (Outcome, error) {
	if !w.Send {
		return Outcome{Rounds: w.Rounds}, nil
	}
	found, err := l.launch(ctx, kernels.Interchange{Queue: l.seen.addr, Outcome: l.words.addr, Limit: l.opts.Limit, Mine: l.mine,
		Peer: l.peer, Bytes: l.data.n, Rounds: w.Rounds, Value: w.Value}, l.block())
	return Outcome{Rounds: found.Done, Nanoseconds: found.Nanoseconds, Kernel: "mori_nic_interchange"}, err
}

func (l *nicLink) verify(ctx context.Context, value uint8) (wrong uint64, err error) {
	found, err := l.launch(ctx, kernels.Verify{Memory: l.data.addr, Outcome: l.words.addr, Bytes: l.data.n, Value: value}, l.block())
	return found.Wrong, err
}

// block is one block of as many threads as the processor likes.
func (l *nicLink) block() kernels.Grid {
	if _, ok := l.processor.(*gpu); ok {
		return kernels.Grid{Blocks: 1, Threads: gpuThreads}
	}
	return kernels.Grid{Blocks: 1, Threads: cpuThreads}
}

func (l *nicLink) launch(ctx context.Context, args kernels.Args, g kernels.Grid) (found kernels.Outcome, err error) {
	reported := &sys.Slice[kernels.Outcome](l.words.addr, 1)[0]
	*reported = kernels.Outcome{}
	k := kernel{function: args.Kernel(), args: new(device.Args).Struct(args.Append(nil), 8), blocks: g.Blocks, threads: g.Threads, onCPU: func() (err error) {
		found, err = kernels.Run(g, args)
		return err
	}}
	err = l.processor.run(ctx, k)
	if _, ok := l.processor.(*gpu); ok {
		found = *reported
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
	errs := []error{l.nic.Close()}
	for i := len(l.undo) - 1; i >= 0; i-- {
		errs = append(errs, l.undo[i]())
	}
	l.undo = nil
	return errors.Join(errs...)
}

var _ link = (*nicLink)(nil)
