// SPDX-License-Identifier: MIT

package fabric

import (
	"fmt"
	"strings"
)

// mrModeTarget are the rules that matter only if peers access memory.
const mrModeTarget = MRVirtAddr | MRProvKey

// Match answers hints with what an offer, a provider's full ability, can satisfy. It returns a new
// Info, or ErrNoData with the reason.
//
// Zero in hints is a wildcard, except for Mode and MRMode, where it means that the caller follows
// no rule. Nil hints request nothing and follow every rule. Match grants the primary capabilities
// that the hints request, or all if they request none. It adds the secondary ones. It drops the
// rules of the offer's MRMode that the granted capabilities do not need; the hints must contain the
// others. The offer's limits must be at least the hints', except BestOp, which is advice.
func Match(hints, offer *Info) (*Info, error) {
	out := offer.Clone()
	if hints == nil {
		return out, nil
	}
	if err := matchNames(hints, offer); err != nil {
		return nil, err
	}
	if missing := hints.Caps &^ offer.Caps; missing != 0 {
		return nil, noMatch(offer, "has no %s", missing)
	}
	if asked := hints.Caps &^ CapsSecondary; asked != 0 {
		out.Caps = asked | offer.Caps&CapsSecondary
	}
	if extra := offer.Mode &^ hints.Mode; extra != 0 {
		return nil, noMatch(offer, "needs mode %#x", uint32(extra))
	}
	if missing := hints.Order &^ offer.Order; missing != 0 {
		return nil, noMatch(offer, "does not keep order %#x", uint32(missing))
	}
	out.MRMode = neededMode(offer.MRMode, out.Caps)
	if extra := out.MRMode &^ hints.MRMode; extra != 0 {
		return nil, noMatch(offer, "needs memory registration mode %#x", uint32(extra))
	}
	if err := matchLimits(hints, offer); err != nil {
		return nil, err
	}
	if out.Src == "" {
		out.Src = hints.Src
	}
	if out.Dest == "" {
		out.Dest = hints.Dest
	}
	return out, nil
}

func noMatch(offer *Info, format string, args ...any) error {
	return fmt.Errorf("match %s: it %s: %w", offer.Provider, fmt.Sprintf(format, args...), ErrNoData)
}

func matchNames(hints, offer *Info) error {
	switch {
	case hints.Provider != "" && offer.Provider != "" && !strings.EqualFold(hints.Provider, offer.Provider):
		return noMatch(offer, "is not %s", hints.Provider)
	case hints.FabricName != "" && hints.FabricName != offer.FabricName:
		return noMatch(offer, "is on %q and not %q", offer.FabricName, hints.FabricName)
	case hints.DomainName != "" && hints.DomainName != offer.DomainName:
		return noMatch(offer, "is device %q and not %q", offer.DomainName, hints.DomainName)
	case hints.EPType != 0 && hints.EPType != offer.EPType:
		return noMatch(offer, "has endpoints of type %d and not %d", offer.EPType, hints.EPType)
	case hints.Src != "" && offer.Src != "" && hints.Src != offer.Src:
		return noMatch(offer, "is at %s and not %s", offer.Src, hints.Src)
	case hints.Dest != "" && offer.Dest != "" && hints.Dest != offer.Dest:
		return noMatch(offer, "goes to %s and not %s", offer.Dest, hints.Dest)
	}
	return nil
}

func neededMode(mode MRMode, caps Caps) MRMode {
	if caps&CapHMEM == 0 {
		mode &^= MRHMEM
	}
	if caps&(CapRMA|CapAtomic) == 0 {
		mode &^= mrModeTarget
	}
	return mode
}

func matchLimits(hints, offer *Info) error {
	h, o := &hints.Limits, &offer.Limits
	for _, l := range [...]struct {
		name       string
		want, have uint64
	}{
		{"messages", h.MaxMsg, o.MaxMsg},
		{"injected messages", h.MaxInject, o.MaxInject},
		{"private data", uint64(h.MaxPrivate), uint64(o.MaxPrivate)},
		{"remote completion data", uint64(h.CQDataSize), uint64(o.CQDataSize)},
		{"ops in flight", uint64(h.TxSize), uint64(o.TxSize)},
		{"posted receives", uint64(h.RxSize), uint64(o.RxSize)},
		{"local segments", uint64(h.SegLimit), uint64(o.SegLimit)},
		{"remote segments", uint64(h.RSegLimit), uint64(o.RSegLimit)},
		{"blocks", uint64(h.BlockLimit), uint64(o.BlockLimit)},
		{"region keys", uint64(h.MRKeySize), uint64(o.MRKeySize)},
		{"atomics", h.MaxAtomic, o.MaxAtomic},
		{"read after write in order", h.OrderRAW, o.OrderRAW},
		{"write after read in order", h.OrderWAR, o.OrderWAR},
		{"write after write in order", h.OrderWAW, o.OrderWAW},
	} {
		if l.want > l.have {
			return noMatch(offer, "bounds %s to %d and not %d", l.name, l.have, l.want)
		}
	}
	return nil
}

var capsText = [...]string{"MSG", "RMA", "ATOMIC", "TAGGED", "HMEM", "MULTI_RECV", "RMA_EVENT", "TRIGGER", "LOCAL_COMM", "REMOTE_COMM",
	"SOURCE", "DIRECTED_RECV", "SHARED_CTX", "SCALABLE"}

// String returns the set as text, such as "MSG|RMA".
func (c Caps) String() string {
	var words []string
	for i, word := range capsText {
		if c&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	if rest := c >> len(capsText) << len(capsText); rest != 0 || len(words) == 0 {
		words = append(words, fmt.Sprintf("%#x", uint64(rest)))
	}
	return strings.Join(words, "|")
}
