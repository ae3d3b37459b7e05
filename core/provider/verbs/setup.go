// SPDX-License-Identifier: MIT

package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"mori/core/fabric"
)

// The rails of a connection are agreed on over TCP:
//
//	who dialed                              the other
//	makes rails, not connected
//	        ── frameOffer: one railDesc each ──▶
//	                                        makes a rail for each offer that it has a NIC for,
//	                                        as far as it wants them, connects it
//	        ◀── frameAnswer: one railDesc each ──
//	drops the others, and queue pairs beyond the other's, connects
//	        ── frameUp ──▶                  may post from now on
//
// A railDesc in an answer says by its place which offer it takes: the n-th answer with queue pairs
// takes the n-th offer; rails that are not taken are those at the end.

// usualSetupWait bounds it.
const usualSetupWait = 10 * time.Second

// randomPSN is where packets of a rail's queue pairs begin to be numbered, so that stray ones of an
// earlier connection do not fit.
func randomPSN() uint32 {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0
	}
	return binary.BigEndian.Uint32(b[:]) & 0xffffff
}

// offer makes the rails of the side that dialed and offers them to the peer.
func (dp *dataPath) offer() {
	defer dp.setup.Done()
	rails, err := dp.openRails(dp.all.settings.Rails, dp.all.settings.QPs, nil)
	if err != nil {
		dp.setupFailed(err)
		return
	}
	offer := encodeRails(descs(rails)) // before they are the data path's: the answer changes them
	dp.adopt(rails)
	dp.send(frameOffer, offer)
}

// beginSetup makes an offer, if this side dialed, else the peer does. A connection whose rails do
// not come up in time ends.
func (dp *dataPath) beginSetup() {
	wait := dp.all.opts.setupWait
	dp.setup.Add(1)
	go func() {
		defer dp.setup.Done()
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-dp.ready:
		case <-dp.Stopped:
		case <-t.C:
			dp.setupFailed(fmt.Errorf("no answer within %v: %w", wait, fabric.ErrTimeout))
		}
	}()
	if dp.dialed {
		dp.setup.Add(1)
		go dp.offer()
	}
}

// setupFailed ends the connection, and makes both sides log why.
func (dp *dataPath) setupFailed(err error) {
	if dp.IsStopped() {
		return // nobody waits for it
	}
	dp.log.Warn("verbs: no RDMA with a peer", "peer", dp.ep.Peer(), "error", err)
	dp.ep.FailWith(fmt.Errorf("set up RDMA to %s: %w", dp.ep.Peer(), err), frameNoRails, encodeReason(err))
}

// onNoRails ends the connection, since the peer does.
func (dp *dataPath) onNoRails(body []byte) error {
	why, err := parseReason(body)
	if err != nil {
		return err
	}
	dp.log.Warn("verbs: a peer has no RDMA for this host", "peer", dp.ep.Peer(), "its words", why)
	return fmt.Errorf("%s has not set up RDMA to this host: %s: %w", dp.ep.Peer(), why, fabric.ErrConnReset)
}

// openRails makes up to most rails, on the best NICs that are up; in answer to offers, on those
// that go with them.
func (dp *dataPath) openRails(most, qps int, offers []railDesc) (rails []*rail, err error) {
	var why []error
	used := make(map[int]bool)
	for len(rails) < most {
		var offer *railDesc
		if offers != nil {
			offer = &offers[len(rails)]
		}
		i := dp.nextNIC(offer, used)
		if i < 0 {
			break
		}
		used[i] = true
		err := dp.all.nics[i].up()
		var r *rail
		if err == nil {
			r, err = newRail(dp, i, qps, len(rails) == 0 && dp.all.opts.TLS == nil && (offer == nil || offer.wire != 0), offer)
		}
		if err != nil {
			why = append(why, err)
			continue
		}
		rails = append(rails, r)
	}
	if len(rails) == 0 {
		return nil, errors.Join(append(why, fmt.Errorf("no RDMA device can connect to the peer's: %w", fabric.ErrNoData))...)
	}
	for _, err := range why {
		dp.log.Warn("verbs: a device is not used", "peer", dp.ep.Peer(), "error", err)
	}
	return rails, nil
}

// nextNIC is the best one that is not used yet, and has the link layer of an offer if there is one:
// with affinity the one of the same index. -1: none.
func (dp *dataPath) nextNIC(offer *railDesc, used map[int]bool) int {
	best := -1
	for i, n := range dp.all.nics {
		if used[i] || offer != nil && offer.link != n.link.LinkLayer {
			continue
		}
		if dp.all.settings.Affinity && offer != nil && int(offer.index) == n.index {
			return i
		}
		if best < 0 {
			best = i
		}
	}
	return best
}

func descs(rails []*rail) []railDesc {
	all := make([]railDesc, 0, len(rails))
	for _, r := range rails {
		all = append(all, r.desc())
	}
	return all
}

// adopt makes rails the data path's, in this order, so that Close closes them.
func (dp *dataPath) adopt(rails []*rail) {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	dp.rails = rails
	for i, r := range rails {
		r.index = i
	}
}

// onOffer has the rails of the side that did not dial made.
func (dp *dataPath) onOffer(body []byte) error {
	offers, err := parseRails(body)
	if err != nil {
		return err
	}
	if err := dp.first("offer"); err != nil {
		return err
	}
	dp.setup.Add(1)
	go dp.answer(offers)
	return nil
}

// first refuses a second offer or answer, and one that the side that makes it does not send.
func (dp *dataPath) first(what string) error {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	if dp.asked || dp.dialed != (what == "answer") || dp.dialed && len(dp.rails) == 0 {
		return fmt.Errorf("unexpected %s of rails: %w", what, fabric.ErrProtocol)
	}
	dp.asked = true
	return nil
}

func (dp *dataPath) answer(offers []railDesc) {
	defer dp.setup.Done()
	s := &dp.all.settings
	rails, err := dp.openRails(min(len(offers), s.Rails), min(len(offers[0].qps), s.QPs), offers)
	if err == nil {
		dp.adopt(rails)
		for i, r := range rails {
			if err = r.connect(&offers[i]); err != nil {
				err = fmt.Errorf("connect %s: %w", r, err)
				break
			}
		}
	}
	if err != nil {
		dp.setupFailed(err)
		return
	}
	dp.mu.Lock()
	dp.wired = true
	dp.mu.Unlock()
	dp.send(frameAnswer, encodeRails(descs(rails)))
}

func (dp *dataPath) onAnswer(body []byte) error {
	answers, err := parseRails(body)
	if err != nil {
		return err
	}
	if err := dp.first("answer"); err != nil {
		return err
	}
	dp.mu.Lock()
	rails := dp.rails
	dp.mu.Unlock()
	if len(answers) > len(rails) {
		return fmt.Errorf("%d rails in answer to %d: %w", len(answers), len(rails), fabric.ErrProtocol)
	}
	dp.setup.Add(1)
	go dp.conclude(slices.Clone(rails), answers)
	return nil
}

// conclude connects the rails that the peer took.
func (dp *dataPath) conclude(rails []*rail, answers []railDesc) {
	defer dp.setup.Done()
	dp.adopt(rails[:len(answers)])
	for _, r := range rails[len(answers):] {
		logged(dp.log, "close a rail that the peer does not have", r.close())
	}
	for i := range answers {
		rails[i].shrink(len(answers[i].qps))
		if err := rails[i].connect(&answers[i]); err != nil {
			dp.setupFailed(fmt.Errorf("connect %s: %w", rails[i], err))
			return
		}
	}
	dp.send(frameUp, nil)
	dp.up()
}

func (dp *dataPath) onUp() error {
	dp.mu.Lock()
	wired := dp.wired
	dp.mu.Unlock()
	if !wired || dp.isReady() {
		return fmt.Errorf("rails were reported up before they were agreed, or twice: %w", fabric.ErrProtocol)
	}
	dp.up()
	return nil
}

// up lets ops begin.
func (dp *dataPath) up() {
	dp.maxInline, dp.maxRun = maxInline, 1<<30
	for _, r := range dp.rails {
		dp.pairs = append(dp.pairs, r.pairs...)
		if most := uint64(r.nic.link.MaxMsg); most > 0 {
			dp.maxRun = min(dp.maxRun, most)
		}
		for _, p := range r.pairs {
			dp.maxInline = min(dp.maxInline, uint64(p.inline))
		}
	}
	close(dp.ready)
	if w := dp.rails[0].wire; w != nil {
		dp.ep.AddWire(w)
	}
}
