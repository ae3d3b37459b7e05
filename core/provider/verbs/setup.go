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
//	                                        makes a rail for each offer that it has a NIC for, as far as it wants them, connects it
//	        ◀── frameAnswer: one railDesc each ──
//	drops the others, and queue pairs beyond the other's, connects
//	        ── frameUp ──▶                  may post from now on
//
// A railDesc in an answer says by its place which offer it takes: the n-th answer with queue pairs takes the n-th offer; rails that are not
// taken are those at the end.

// usualSetupWait bounds it.
const usualSetupWait = 10 * time.Second

// randomPSN is where packets of a rail's queue pairs begin to be numbered, so that stray ones of an earlier connection do not fit.
func randomPSN() uint32 {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0
	}
	return binary.BigEndian.Uint32(b[:]) & 0xffffff
}

// offer makes the rails of the side that dialed and tells the peer.
func (m *mover) offer() {
	defer m.setup.Done()
	rails, err := m.openRails(m.all.settings.Rails, m.all.settings.QPs, nil)
	if err != nil {
		m.setupFailed(err)
		return
	}
	offer := encodeRails(descs(rails)) // before they are the mover's: the answer changes them
	m.adopt(rails)
	m.send(frameOffer, offer)
}

// beginSetup makes an offer, if this side dialed, else the peer does. A connection whose rails do not come up in time ends.
func (m *mover) beginSetup() {
	wait := m.all.opts.setupWait
	m.setup.Add(1)
	go func() {
		defer m.setup.Done()
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-m.ready:
		case <-m.stopped:
		case <-t.C:
			m.setupFailed(fmt.Errorf("no answer within %v: %w", wait, fabric.ErrTimeout))
		}
	}()
	if m.dialed {
		m.setup.Add(1)
		go m.offer()
	}
}

// setupFailed ends the connection, and has both sides' logs tell why.
func (m *mover) setupFailed(err error) {
	if m.isStopped() {
		return // nobody waits for it
	}
	m.log.Warn("verbs: no RDMA with a peer", "peer", m.ep.Peer(), "error", err)
	m.ep.FailWith(fmt.Errorf("set up RDMA to %s: %w", m.ep.Peer(), err), frameNoRails, encodeReason(err))
}

// onNoRails ends the connection, since the peer does.
func (m *mover) onNoRails(body []byte) error {
	why, err := parseReason(body)
	if err != nil {
		return err
	}
	m.log.Warn("verbs: a peer has no RDMA for this host", "peer", m.ep.Peer(), "its words", why)
	return fmt.Errorf("%s has not set up RDMA to this host: %s: %w", m.ep.Peer(), why, fabric.ErrConnReset)
}

// openRails makes up to most rails, on the best NICs that are up; in answer to offers, on those that go with them.
func (m *mover) openRails(most, qps int, offers []railDesc) (rails []*rail, err error) {
	var why []error
	used := make(map[int]bool)
	for len(rails) < most {
		var offer *railDesc
		if offers != nil {
			offer = &offers[len(rails)]
		}
		i := m.nextNIC(offer, used)
		if i < 0 {
			break
		}
		used[i] = true
		err := m.all.nics[i].up()
		var r *rail
		if err == nil {
			r, err = newRail(m, i, qps, len(rails) == 0 && m.all.opts.TLS == nil && (offer == nil || offer.wire != 0), offer)
		}
		if err != nil {
			why = append(why, err)
			continue
		}
		rails = append(rails, r)
	}
	if len(rails) == 0 {
		return nil, errors.Join(append(why, fmt.Errorf("no RDMA device goes with the peer's: %w", fabric.ErrNoData))...)
	}
	for _, err := range why {
		m.log.Warn("verbs: a device is left out", "peer", m.ep.Peer(), "error", err)
	}
	return rails, nil
}

// nextNIC is the best one that is not used yet, and has the link layer of an offer if there is one: with affinity the one of the same index. -1: none.
func (m *mover) nextNIC(offer *railDesc, used map[int]bool) int {
	best := -1
	for i, n := range m.all.nics {
		if used[i] || offer != nil && offer.link != n.link.LinkLayer {
			continue
		}
		if m.all.settings.Affinity && offer != nil && int(offer.index) == n.index {
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

// adopt makes rails the mover's, in this order, so that Stop closes them.
func (m *mover) adopt(rails []*rail) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rails = rails
	for i, r := range rails {
		r.index = i
	}
}

// onOffer has the rails of the side that did not dial made.
func (m *mover) onOffer(body []byte) error {
	offers, err := parseRails(body)
	if err != nil {
		return err
	}
	if err := m.first("offer"); err != nil {
		return err
	}
	m.setup.Add(1)
	go m.answer(offers)
	return nil
}

// first refuses a second offer or answer, and one that the side that makes it does not send.
func (m *mover) first(what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked || m.dialed != (what == "answer") || m.dialed && len(m.rails) == 0 {
		return fmt.Errorf("%s of rails out of turn: %w", what, fabric.ErrProtocol)
	}
	m.asked = true
	return nil
}

func (m *mover) answer(offers []railDesc) {
	defer m.setup.Done()
	s := &m.all.settings
	rails, err := m.openRails(min(len(offers), s.Rails), min(len(offers[0].qps), s.QPs), offers)
	if err == nil {
		m.adopt(rails)
		for i, r := range rails {
			if err = r.connect(&offers[i]); err != nil {
				err = fmt.Errorf("connect %s: %w", r, err)
				break
			}
		}
	}
	if err != nil {
		m.setupFailed(err)
		return
	}
	m.mu.Lock()
	m.wired = true
	m.mu.Unlock()
	m.send(frameAnswer, encodeRails(descs(rails)))
}

func (m *mover) onAnswer(body []byte) error {
	answers, err := parseRails(body)
	if err != nil {
		return err
	}
	if err := m.first("answer"); err != nil {
		return err
	}
	m.mu.Lock()
	rails := m.rails
	m.mu.Unlock()
	if len(answers) > len(rails) {
		return fmt.Errorf("%d rails in answer to %d: %w", len(answers), len(rails), fabric.ErrProtocol)
	}
	m.setup.Add(1)
	go m.conclude(slices.Clone(rails), answers)
	return nil
}

// conclude connects the rails that the peer took.
func (m *mover) conclude(rails []*rail, answers []railDesc) {
	defer m.setup.Done()
	m.adopt(rails[:len(answers)])
	for _, r := range rails[len(answers):] {
		logged(m.log, "close a rail that the peer has not", r.close())
	}
	for i := range answers {
		rails[i].shrink(len(answers[i].qps))
		if err := rails[i].connect(&answers[i]); err != nil {
			m.setupFailed(fmt.Errorf("connect %s: %w", rails[i], err))
			return
		}
	}
	m.send(frameUp, nil)
	m.up()
}

func (m *mover) onUp() error {
	m.mu.Lock()
	wired := m.wired
	m.mu.Unlock()
	if !wired || m.isReady() {
		return fmt.Errorf("rails are up before they were agreed on, or twice: %w", fabric.ErrProtocol)
	}
	m.up()
	return nil
}

// up lets ops begin.
func (m *mover) up() {
	m.maxInline, m.maxRun = maxInline, 1<<30
	for _, r := range m.rails {
		m.pairs = append(m.pairs, r.pairs...)
		if most := uint64(r.nic.link.MaxMsg); most > 0 {
			m.maxRun = min(m.maxRun, most)
		}
		for _, p := range r.pairs {
			m.maxInline = min(m.maxInline, uint64(p.inline))
		}
	}
	close(m.ready)
	if w := m.rails[0].wire; w != nil {
		m.ep.AddWire(w)
	}
}
