// SPDX-License-Identifier: MIT

package mem

import (
	"context"
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// A network is a fabric.Fabric: one opening of a Provider.
type network struct {
	util.Parent
	provider *Provider
}

var _ fabric.Fabric = (*network)(nil)

func (f *network) Domain(context.Context, *fabric.Info) (fabric.Domain, error) {
	if err := f.Adopt(); err != nil {
		return nil, fmt.Errorf("open domain: %w", err)
	}
	return &domain{network: f, regions: util.NewMRTable(), imports: util.NewImports()}, nil
}

func (f *network) Listen(_ context.Context, in *fabric.Info) (fabric.Listener, error) {
	return f.listen(in)
}

func (f *network) listen(in *fabric.Info) (fabric.Listener, error) {
	l := &listener{network: f, backlog: make(chan *request, backlogSize), done: make(chan struct{})}
	if in != nil {
		l.addr = in.Src
	}
	if err := f.Adopt(); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := f.provider.list(l); err != nil {
		f.Leave()
		return nil, err
	}
	return l, nil
}

func (f *network) EQ(size int) (fabric.EQ, error) {
	q, err := util.NewEQ(size)
	if err != nil {
		return nil, err
	}
	if err := f.Adopt(); err != nil {
		return nil, fmt.Errorf("open event queue: %w", err)
	}
	q.OnClose(f.Leave)
	return q, nil
}

func (f *network) Close() error {
	_, err := f.Parent.Close()
	return err
}
