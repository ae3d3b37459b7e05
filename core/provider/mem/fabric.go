// SPDX-License-Identifier: MIT

package mem

import (
	"context"
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/regions"
)

// A network is a fabric.Fabric that Provider.Open returned.
type network struct {
	util.FabricBase
	provider *Provider
}

var _ fabric.Fabric = (*network)(nil)

func (f *network) Domain(context.Context, *fabric.Info) (fabric.Domain, error) {
	if err := f.Adopt(); err != nil {
		return nil, fmt.Errorf("open domain: %w", err)
	}
	return &domain{network: f, regions: regions.NewTable(), imports: regions.NewImports()}, nil
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

func (f *network) Close() error {
	_, err := f.Parent.Close()
	return err
}
