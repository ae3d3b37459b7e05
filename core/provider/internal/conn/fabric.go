// SPDX-License-Identifier: MIT

package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/atomics"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/handshake"
	"mori/core/provider/internal/staging"
)

// A Fabric is a network of stream sockets.
type Fabric struct {
	util.FabricBase
	cfg Config
}

var _ fabric.Fabric = (*Fabric)(nil)

// New makes a fabric. It fills in the fields of cfg.Info.Limits that are zero.
func New(cfg Config) (*Fabric, error) {
	if cfg.Transport == nil || cfg.Links < 1 || cfg.Links > frame.MaxLinks {
		return nil, fmt.Errorf("make a fabric of %d links over %T: %w", cfg.Links, cfg.Transport, fabric.ErrInvalid)
	}
	if cfg.Compress != CompressNever && !frame.CanCompress {
		return nil, fmt.Errorf("make a fabric that compresses payload in a build without cgo: %w", fabric.ErrNotSupported)
	}
	l := &cfg.Info.Limits
	*l = FillLimits(*l)
	if l.TxSize < 1 || l.TxSize > frame.MaxTx-staging.MaxPieces || l.RxSize < 1 || l.MaxMsg > frame.MaxMsg || l.MaxInject > maxInject || l.MaxPrivate > frame.MaxPrivate ||
		l.SegLimit > frame.MaxSegments || l.RSegLimit > frame.MaxSegments {
		return nil, fmt.Errorf("make a fabric with limits %+v: %w", *l, fabric.ErrInvalid)
	}
	return &Fabric{cfg: cfg}, nil
}

const maxInject = 4 << 10

// FillLimits sets the zero fields of l to the protocol's limits.
func FillLimits(l fabric.Limits) fabric.Limits {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	if l.MaxMsg == 0 {
		l.MaxMsg = frame.MaxMsg
	}
	if l.MaxInject == 0 {
		l.MaxInject = 512
	}
	if l.BestOp == 0 {
		l.BestOp = 1 << 20
	}
	set(&l.MaxPrivate, frame.MaxPrivate)
	set(&l.CQDataSize, 8)
	set(&l.TxSize, 512)
	set(&l.RxSize, 1024)
	set(&l.SegLimit, frame.MaxSegments)
	set(&l.RSegLimit, frame.MaxSegments)
	if l.MaxAtomic == 0 {
		l.MaxAtomic = atomics.MaxBytes
	}
	set(&l.MRKeySize, fabric.RegionKeyRawLen)
	return l
}

func (c *Config) log(level slog.Level, msg string, args ...any) {
	l := c.Logger
	if l == nil {
		l = slog.Default()
	}
	l.Log(context.Background(), level, msg, args...)
}

// adopt counts a child, or returns an error if the fabric is closed.
func (f *Fabric) adopt(what string) error {
	if err := f.Adopt(); err != nil {
		return fmt.Errorf("%s: %s fabric: %w", what, f.cfg.Info.Provider, err)
	}
	return nil
}

// Domain opens the device; see fabric.Fabric.
func (f *Fabric) Domain(ctx context.Context, in *fabric.Info) (fabric.Domain, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open domain: %w", err)
	}
	if in != nil && in.DomainName != "" && in.DomainName != f.cfg.Info.DomainName {
		return nil, fmt.Errorf("open domain %q, this is domain %q: %w", in.DomainName, f.cfg.Info.DomainName, fabric.ErrNoData)
	}
	if err := f.adopt("open domain"); err != nil {
		return nil, err
	}
	return newDomain(f, in != nil && in.Caps&fabric.CapHMEM != 0), nil
}

// Listen starts to accept connections; see fabric.Fabric.
func (f *Fabric) Listen(ctx context.Context, in *fabric.Info) (fabric.Listener, error) {
	var at fabric.Addr
	if in != nil {
		at = in.Src
	}
	if err := f.adopt("listen"); err != nil {
		return nil, err
	}
	l, err := handshake.Listen(ctx, handshake.Config{
		Transport: f.cfg.Transport, Provider: f.cfg.Info.Provider, Wait: f.cfg.Handshake,
		Log: f.cfg.log, Closed: f.Leave,
	}, at)
	if err != nil {
		f.Leave()
		return nil, err
	}
	return l, nil
}

// Close frees the fabric, or returns ErrBusy; see fabric.Fabric.
func (f *Fabric) Close() error {
	_, err := f.Parent.Close()
	return err
}

// An Offer describes the connected endpoints that a provider built on this package offers. The
// provider embeds it.
type Offer struct{ Info fabric.Info }

// NewOffer makes a provider's offer: caps plus the capabilities that all such providers have.
func NewOffer(name, fabricName string, caps fabric.Caps, limits fabric.Limits) Offer {
	return Offer{fabric.Info{
		Provider:        name,
		ProviderVersion: fabric.Version{Major: 1, Minor: 0},
		FabricName:      fabricName,
		DomainName:      name,
		Caps:            fabric.CapMSG | fabric.CapRMA | fabric.CapAtomic | fabric.CapLocalComm | caps,
		Order:           fabric.OrderSAS,
		EPType:          fabric.EPMsg,
		Limits:          FillLimits(limits),
	}}
}

// Name returns the provider's name.
func (o *Offer) Name() string { return o.Info.Provider }

// Version returns the versions of the provider and of the API.
func (o *Offer) Version() (provider, api fabric.Version) {
	return o.Info.ProviderVersion, fabric.APIVersion
}

// OfferDevice adds device memory to an offer if hints ask for it. Only then does it open the GPU
// drivers. If the host certainly has no GPU, OfferDevice returns an error that wraps
// fabric.ErrNoData and says why.
func OfferDevice(offer, hints *fabric.Info) error {
	if hints == nil || hints.Caps&fabric.CapHMEM == 0 {
		return nil
	}
	if _, err := device.Devices(); errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%s does not support device memory: %w: %w", offer.Provider, err, fabric.ErrNoData)
	}
	offer.Caps |= fabric.CapHMEM
	offer.MRMode |= fabric.MRHMEM
	return nil
}

// Answers returns what a provider that offers msg answers to hints: an Info for each endpoint type
// that satisfies them, EPMsg first. If none does, the error wraps fabric.ErrNoData and says why.
func Answers(hints *fabric.Info, msg fabric.Info) ([]*fabric.Info, error) {
	rdm := msg
	rdm.EPType = fabric.EPRDM
	rdm.Caps |= fabric.CapSource
	var answers []*fabric.Info
	var misfit error
	for _, offer := range []*fabric.Info{&msg, &rdm} {
		in, err := fabric.Match(hints, offer)
		if err != nil {
			misfit = err
			continue
		}
		answers = append(answers, in)
	}
	if len(answers) == 0 {
		return nil, misfit
	}
	return answers, nil
}
