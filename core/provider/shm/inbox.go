// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/receive"
	"mori/core/provider/shm/internal/ring"
)

// An inbox takes what the peer put into this side's rings: remote data of writes, messages, and
// answers to ours.
//
// It is a util.Source: a goroutine that polls a completion queue of the endpoint empties the rings.
// If none polls, the peer's frameWake makes the stream's reader do it. A wakeup is requested by:
//
//	remote data  only while readers are parked: it stays in the ring until the queue is read
//	messages     always, unless a reader spins, since receives, answers and counters progress without
//	             a reader; a timer finds out whether a reader still spins
//
// mu is held while the rings are emptied. A goroutine that finds it taken leaves the work to its
// holder. Hooks and Finish run under it; they may call Drain again, and never wait for it. A hook
// may also run under locks of receive queues and of the stream, which messages take: with a hook,
// only serve receives them.
type inbox struct {
	path *dataPath
	cq   *util.CQ // of receives and remote data
	tx   *util.CQ // of messages
	feed *receive.Feed

	mu       sync.Mutex
	notices  ring.Reader
	proven   uint64 // ticket of a grant for which check passes; 0: none yet
	answers  ring.Reader
	messages ring.MessageReader
	replies  ring.Writer // our answers, in the peer's memory
	incoming incoming
	armed    int                 // readers that are parked
	polls    int                 // looks that found nothing
	late     []fabric.Completion // what the ring held when the connection ended and the queue had no place for
	broken   bool                // the peer broke the rules
	stopped  bool
	timer    *time.Timer // runs while spins; nil if messages do not go through the rings
	period   time.Duration

	again atomic.Bool // something changed for the holder of mu
	spins atomic.Bool // a reader looks all the time; written with mu held
}

var _ util.Source = (*inbox)(nil)

const (
	// spinPolls looks in a row that find nothing are a reader that spins.
	spinPolls = 64
	// spinTime is how long after its last look a reader that spun is forgotten: what arrives
	// meanwhile waits for that. It doubles while the reader goes on, up to spinMost: a timer every
	// 2 ms on both sides cost a transfer 5 % on 2 cores.
	spinTime = 2 * time.Millisecond
	spinMost = 16 * time.Millisecond
)

// start lets the rings be looked into.
func (b *inbox) start() {
	if b.path.greet.messages {
		b.timer = time.AfterFunc(time.Hour, b.tick)
		b.timer.Stop()
	}
	b.cq.AddSource(b)
	if b.tx != b.cq && b.timer != nil {
		b.tx.AddSource(b)
	}
	b.serve()
}

// Drain is for the readers of the queues; see util.Source. It leaves the work to the goroutine that
// holds mu: another reader, or this one, when the queue's hook reads during a push. A reader that
// parks called Arm before, so the holder knows of it and does not leave an entry behind without
// requesting frameWake.
func (b *inbox) Drain() { b.drain(true) }

// serve empties the rings if no goroutine polls: the peer woke this side, receives were posted, or
// a reader stopped spinning.
func (b *inbox) serve() {
	b.again.Store(true)
	b.drain(false)
}

func (b *inbox) drain(poll bool) {
	for b.mu.TryLock() {
		if b.again.Load() {
			b.again.Store(false)
		}
		switch {
		case b.stopped:
			b.drainLate()
		case !b.broken:
			b.work(poll)
		}
		b.mu.Unlock()
		if !b.again.Load() {
			return
		}
	}
}

// work leaves the rings empty, with a wakeup requested if one is wanted, or with a queue full or no
// receive posted. It checks at most twice: an honest peer that replies in between wakes this side.
func (b *inbox) work(poll bool) {
	messages := b.timer != nil && !(poll && b.hooked())
	took, err := b.takeAll(messages)
	if err == nil && b.ask(messages) {
		var more bool
		more, err = b.takeAll(messages)
		took = took || more
	}
	if err != nil {
		b.broken = true
		b.path.ep.Fail(fmt.Errorf("ring from %s: %w", b.path.ep.Peer(), err))
		return
	}
	if poll && messages {
		b.polled(took)
	}
}

func (b *inbox) hooked() bool { return b.cq.Hooked() || b.tx.Hooked() }

// polled counts a look into the rings, and distinguishes a reader that spins from an occasional
// one.
func (b *inbox) polled(took bool) {
	b.polls++
	switch {
	case b.spins.Load():
		if b.path.outbox.waits.Load() {
			b.path.outbox.flush()
		}
	case took:
		b.polls = 0
	case b.polls >= spinPolls:
		b.spins.Store(true)
		b.period = spinTime
		b.timer.Reset(b.period)
	}
}

// tick is the timer: it finds out whether the reader still spins.
func (b *inbox) tick() {
	b.mu.Lock()
	still := b.polls > 0 && !b.stopped
	b.polls = 0
	if still {
		b.period = min(2*b.period, spinMost)
		b.timer.Reset(b.period)
	} else {
		b.spins.Store(false)
	}
	b.mu.Unlock()
	if !still {
		b.serve()
		b.path.outbox.flush()
	}
}

func (b *inbox) takeAll(messages bool) (took bool, err error) {
	if messages {
		answers, err := b.takeAnswers()
		if err != nil {
			return false, err
		}
		if took, err = b.takeMessages(); err != nil {
			return false, err
		}
		took = took || answers
	}
	notices, err := b.takeNotices()
	return took || notices, err
}

// ask requests frameWake if a wakeup is wanted, and reports whether the peer did not know.
func (b *inbox) ask(messages bool) (asked bool) {
	if b.armed > 0 {
		asked = b.notices.AskForWake()
	}
	if messages && (b.armed > 0 || !b.spins.Load()) {
		asked = b.answers.AskForWake() || asked
	}
	return asked
}

// takeNotices hands remote data to the queue until that is full.
func (b *inbox) takeNotices() (took bool, err error) {
	for {
		e, ok, err := b.notices.Next()
		if err == nil && ok {
			err = b.check(e)
		}
		if err != nil || !ok || !b.cq.TryPush(remoteWrite(b.path.ep.Source(), e)) {
			if took && b.notices.ProducerWaits() {
				b.path.send(frameSpace, nil)
			}
			return took, err
		}
		b.notices.Take()
		took = true
	}
}

// check refuses remote data of a write that the peer cannot have made: for this grant it has not
// shown the key of a region that it may write to.
func (b *inbox) check(e ring.Entry) error {
	if ticket := e[2]; ticket == 0 || ticket != b.proven {
		if !b.path.granter.MayWrite(ticket) {
			return fmt.Errorf("remote data %d of a write under grant %#x, which does not allow writes: %w", e[0], ticket, fabric.ErrProtocol)
		}
		b.proven = ticket
	}
	return nil
}

func remoteWrite(from fabric.AVAddr, e ring.Entry) fabric.Completion {
	return fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: from, Len: e[1], Data: e[0]}
}

// takeAnswers ends messages of ours.
func (b *inbox) takeAnswers() (took bool, err error) {
	for {
		e, ok, err := b.answers.Next()
		if err != nil || !ok {
			return took, err
		}
		b.answers.Take()
		took = true
		if err := b.path.outbox.answer(e[0], e[1]); err != nil {
			return took, err
		}
	}
}

func (b *inbox) drainLate() {
	for len(b.late) > 0 && b.cq.TryPush(b.late[0]) {
		b.late = b.late[1:]
	}
	if len(b.late) == 0 {
		b.late = nil
		b.cq.RemoveSource(b)
	}
}

// Arm counts the readers that are parked; see util.Source.
func (b *inbox) Arm(parking bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !parking {
		b.armed--
		return
	}
	b.armed++
	if !b.stopped {
		b.ask(b.timer != nil)
	}
}

// settle ends the messages that the peer has answered.
func (b *inbox) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.broken {
		_, _ = b.takeAnswers() // the connection has ended by another cause already
	}
}

// stop takes everything out of the rings, whose memory goes. What the queue has no place for waits
// here for its readers.
func (b *inbox) stop(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.timer != nil {
		if b.tx != b.cq {
			b.tx.RemoveSource(b)
		}
		b.timer.Stop()
		b.stopMessages(cause)
	}
	for range ring.Entries { // and not for as long as a peer likes
		e, ok, err := b.notices.Next()
		if !ok || err != nil || b.check(e) != nil {
			break
		}
		b.notices.Take()
		b.late = append(b.late, remoteWrite(b.path.ep.Source(), e))
	}
	b.drainLate()
}
