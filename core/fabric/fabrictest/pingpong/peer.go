// SPDX-License-Identifier: MIT

package pingpong

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"mori/core/fabric"
)

// A side is a process with one endpoint.
type side struct {
	End
	fab   fabric.Fabric
	dom   fabric.Domain
	av    fabric.AV
	close []func() error
}

// newSide makes an enabled endpoint of the type of in.
func newSide(ctx context.Context, p fabric.Provider, in *fabric.Info) (s *side, err error) {
	s = &side{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.fab, err = p.Open(ctx, in); err != nil {
		return s, err
	}
	s.close = append(s.close, s.fab.Close)
	if s.dom, err = s.fab.Domain(ctx, in); err != nil {
		return s, err
	}
	s.close = append(s.close, s.dom.Close)
	if s.CQ, err = s.dom.CQ(256); err != nil {
		return s, err
	}
	s.close = append(s.close, s.CQ.Close)
	if s.av, err = s.dom.AV(2); err != nil {
		return s, err
	}
	s.close = append(s.close, s.av.Close)
	if s.EP, err = s.dom.Endpoint(in); err != nil {
		return s, err
	}
	s.close = append(s.close, s.EP.Close)
	if err = s.EP.BindCQ(s.CQ, fabric.DirTransmit|fabric.DirRecv, false); err != nil {
		return s, err
	}
	if in.EPType == fabric.EPRDM {
		if err = s.EP.BindAV(s.av); err != nil {
			return s, err
		}
	}
	return s, s.EP.Enable()
}

// Close closes everything, the youngest first.
func (s *side) Close() error {
	var errs []error
	for i := len(s.close) - 1; i >= 0; i-- {
		errs = append(errs, s.close[i]())
	}
	if s.mem != nil {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}

// address makes the other side's name the one to send to.
func (s *side) address(name fabric.Addr) error {
	numbers, err := s.av.Insert(name)
	if err == nil {
		s.Dest = numbers[0]
	}
	return err
}

// What the two processes say over the pipes, a JSON value each: the server its address, the client
// a begin, and then a round at a time, which the server answers by "ready" when it has posted its
// receive.
type (
	begin struct {
		Name fabric.Addr // EPRDM: the client's
		Most int         // bytes of a message
	}
	round struct{ Size, Iters int }
)

// Serve is the answering side's whole process: it talks over in and out, and ends with in.
// args are those of Config.Command.
func Serve(p fabric.Provider, in io.Reader, out io.Writer, args []string) error {
	ctx := context.Background()
	info, err := infoOf(ctx, p, args)
	if err != nil {
		return err
	}
	s, err := newSide(ctx, p, info)
	if err != nil {
		return err
	}
	err = s.serve(ctx, json.NewDecoder(in), json.NewEncoder(out), info.EPType)
	return errors.Join(err, s.Close())
}

// infoOf is the first answer of p for the type that args name: "msg" or "rdm".
func infoOf(ctx context.Context, p fabric.Provider, args []string) (*fabric.Info, error) {
	hints := &fabric.Info{EPType: fabric.EPMsg}
	if len(args) > 0 && args[0] == "rdm" {
		hints.EPType = fabric.EPRDM
	}
	infos, err := p.GetInfo(ctx, "", "", hints)
	if err != nil {
		return nil, err
	}
	return infos[0], nil
}

func (s *side) serve(ctx context.Context, in *json.Decoder, out *json.Encoder, t fabric.EPType) error {
	var first begin
	if t == fabric.EPRDM {
		name, err := s.EP.Name()
		if err == nil {
			err = errors.Join(out.Encode(name), in.Decode(&first))
		}
		if err == nil {
			err = s.address(first.Name)
		}
		if err != nil {
			return err
		}
	} else {
		ln, err := s.fab.Listen(ctx, &fabric.Info{})
		if err != nil {
			return err
		}
		err = errors.Join(out.Encode(ln.Addr()), in.Decode(&first))
		if err == nil {
			err = s.accept(ctx, ln)
		}
		if err = errors.Join(err, ln.Close()); err != nil {
			return err
		}
	}
	if err := s.Start(first.Most); err != nil {
		return err
	}
	for {
		if err := out.Encode("ready"); err != nil {
			return err
		}
		var r round
		if err := in.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.Pong(ctx, r.Size, r.Iters); err != nil {
			return err
		}
	}
}

func (s *side) accept(ctx context.Context, ln fabric.Listener) error {
	req, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	return s.EP.(fabric.Connector).Accept(ctx, req, nil)
}
