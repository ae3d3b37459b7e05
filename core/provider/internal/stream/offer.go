// SPDX-License-Identifier: MIT

package stream

import (
	"errors"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
)

// OfferDevice adds device memory to an offer if hints ask for it. Only then are the drivers opened.
// Where there conclusively is no GPU the error, which wraps fabric.ErrNoData, says why.
func OfferDevice(offer, hints *fabric.Info) error {
	if hints == nil || hints.Caps&fabric.CapHMEM == 0 {
		return nil
	}
	if _, err := device.Devices(); errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%s has no device memory to move: %w: %w", offer.Provider, err, fabric.ErrNoData)
	}
	offer.Caps |= fabric.CapHMEM
	offer.MRMode |= fabric.MRHMEM
	return nil
}

// Answers are what a provider that offers msg answers to hints: an Info for each type of endpoint
// that satisfies them, EPMsg first. The error, which wraps fabric.ErrNoData, says why there is
// none.
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
