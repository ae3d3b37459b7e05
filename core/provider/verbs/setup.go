// SPDX-License-Identifier: MIT

package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"mori/core/fabric"
)

// The two sides negotiate the rails of a connection over TCP:
//
//	the side that dialed                    the other side
//	makes rails, not connected
//	        ── frameOffer: one railDesc each ──▶
//	                                        makes a rail for each offer that it has a NIC for,
//	                                        as far as it wants them, connects it
//	        ◀── frameAnswer: one railDesc each ──
//	drops the others, and queue pairs beyond the other's, connects
//	        ── frameUp ──▶                  may post from now on
//
// The n-th railDesc of an answer accepts the n-th offer. Offers at the end may have no answer.

// usualSetupWait bounds the negotiation.
const usualSetupWait = 10 * time.Second

// A setup negotiates the rails of a connection with the peer.
type setup struct {
	path   *dataPath
	dialed bool           // this side offers rails
	wg     sync.WaitGroup // goroutines of the setup

	mu    sync.Mutex // protects what follows, and rails.all
	asked bool       // an offer or an answer has arrived
	wired bool       // an answer was sent: the peer may report that it is up
}

// randomPSN returns the first packet sequence number of a rail's queue pairs. It is random, so that
// stray packets of an earlier connection do not match.
func randomPSN() uint32 {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0
	}
	return binary.BigEndian.Uint32(b[:]) & 0xffffff
}

// offer makes the rails of the side that dialed and offers them to the peer.
func (s *setup) offer() {
	defer s.wg.Done()
	rails, err := s.openRails(s.path.all.settings.Rails, s.path.all.settings.QPs, nil)
	if err != nil {
		s.failed(err)
		return
	}
	offer := encodeRails(descs(rails)) // before adopt: the answer changes them
	s.adopt(rails)
	s.path.ops.Send(frameOffer, offer)
}

// begin sends an offer if this side dialed; otherwise the peer does. If the rails are not up in
// time, the connection ends.
func (s *setup) begin() {
	wait := s.path.all.opts.setupWait
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-s.path.rails.ready:
		case <-s.path.ops.Stopped:
		case <-t.C:
			s.failed(fmt.Errorf("no answer within %v: %w", wait, fabric.ErrTimeout))
		}
	}()
	if s.dialed {
		s.wg.Add(1)
		go s.offer()
	}
}

// failed ends the connection. Both sides log why.
func (s *setup) failed(err error) {
	if s.path.ops.IsStopped() {
		return
	}
	s.path.log.Warn("verbs: no RDMA with a peer", "peer", s.path.port.Peer(), "error", err)
	s.path.port.FailWith(fmt.Errorf("set up RDMA to %s: %w", s.path.port.Peer(), err), frameNoRails, encodeReason(err))
}

// onNoRails ends the connection because the peer's setup failed.
func (s *setup) onNoRails(body []byte) error {
	why, err := parseReason(body)
	if err != nil {
		return err
	}
	s.path.log.Warn("verbs: a peer has no RDMA for this host", "peer", s.path.port.Peer(), "its words", why)
	return fmt.Errorf("%s has not set up RDMA to this host: %s: %w", s.path.port.Peer(), why, fabric.ErrConnReset)
}

// openRails makes up to most rails on the best NICs that are up. If there are offers, it uses NICs
// that can connect to the offered ones.
func (s *setup) openRails(most, qps int, offers []railDesc) (rails []*rail, err error) {
	all := s.path.all
	var why []error
	used := make(map[int]bool)
	for len(rails) < most {
		var offer *railDesc
		if offers != nil {
			offer = &offers[len(rails)]
		}
		i := s.nextNIC(offer, used)
		if i < 0 {
			break
		}
		used[i] = true
		err := all.nics[i].up()
		var r *rail
		if err == nil {
			r, err = newRail(s.path, i, qps, len(rails) == 0 && all.opts.TLS == nil && (offer == nil || offer.wire != 0), offer)
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
		s.path.log.Warn("verbs: a device is not used", "peer", s.path.port.Peer(), "error", err)
	}
	return rails, nil
}

// nextNIC returns the best unused NIC, with the link layer of the offer, if there is one. With
// affinity, it returns the NIC with the same index. It returns -1 if no NIC is left.
func (s *setup) nextNIC(offer *railDesc, used map[int]bool) int {
	best := -1
	all := s.path.all
	for i, n := range all.nics {
		if used[i] || offer != nil && offer.link != n.link.LinkLayer {
			continue
		}
		if all.settings.Affinity && offer != nil && int(offer.index) == n.index {
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

// adopt adds rails to the data path, in this order, so that Close closes them.
func (s *setup) adopt(rails []*rail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.path.rails.all = rails
	for i, r := range rails {
		r.index = i
	}
}

// onOffer makes the rails of the side that did not dial.
func (s *setup) onOffer(body []byte) error {
	offers, err := parseRails(body)
	if err != nil {
		return err
	}
	if err := s.first("offer"); err != nil {
		return err
	}
	s.wg.Add(1)
	go s.answer(offers)
	return nil
}

// first rejects a second offer or answer, and one from the wrong side.
func (s *setup) first(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked || s.dialed != (what == "answer") || s.dialed && len(s.path.rails.all) == 0 {
		return fmt.Errorf("unexpected %s of rails: %w", what, fabric.ErrProtocol)
	}
	s.asked = true
	return nil
}

func (s *setup) answer(offers []railDesc) {
	defer s.wg.Done()
	want := &s.path.all.settings
	rails, err := s.openRails(min(len(offers), want.Rails), min(len(offers[0].qps), want.QPs), offers)
	if err == nil {
		s.adopt(rails)
		for i, r := range rails {
			if err = r.connect(&offers[i]); err != nil {
				err = fmt.Errorf("connect %s: %w", r, err)
				break
			}
		}
	}
	if err != nil {
		s.failed(err)
		return
	}
	s.mu.Lock()
	s.wired = true
	s.mu.Unlock()
	s.path.ops.Send(frameAnswer, encodeRails(descs(rails)))
}

func (s *setup) onAnswer(body []byte) error {
	answers, err := parseRails(body)
	if err != nil {
		return err
	}
	if err := s.first("answer"); err != nil {
		return err
	}
	s.mu.Lock()
	rails := s.path.rails.all
	s.mu.Unlock()
	if len(answers) > len(rails) {
		return fmt.Errorf("%d rails in answer to %d: %w", len(answers), len(rails), fabric.ErrProtocol)
	}
	s.wg.Add(1)
	go s.conclude(slices.Clone(rails), answers)
	return nil
}

// conclude connects the rails that the peer accepted.
func (s *setup) conclude(rails []*rail, answers []railDesc) {
	defer s.wg.Done()
	s.adopt(rails[:len(answers)])
	for _, r := range rails[len(answers):] {
		logged(s.path.log, "close a rail that the peer does not have", r.close())
	}
	for i := range answers {
		rails[i].shrink(len(answers[i].qps))
		if err := rails[i].connect(&answers[i]); err != nil {
			s.failed(fmt.Errorf("connect %s: %w", rails[i], err))
			return
		}
	}
	s.path.ops.Send(frameUp, nil)
	s.up()
}

func (s *setup) onUp() error {
	s.mu.Lock()
	wired := s.wired
	s.mu.Unlock()
	if !wired || s.path.rails.isReady() {
		return fmt.Errorf("rails were reported up before they were agreed, or twice: %w", fabric.ErrProtocol)
	}
	s.up()
	return nil
}

// up lets ops start.
func (s *setup) up() {
	rails := &s.path.rails
	rails.up()
	if w := rails.all[0].wire; w != nil {
		s.path.port.AddWire(w)
	}
}

// stop waits for the goroutines of the setup, and returns the rails. Call it after Ops.Stop.
func (s *setup) stop() []*rail {
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.path.rails.all
}
