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

// An inbox reads what the peer put into this side's rings: remote data of writes, messages, and
// answers to our messages.
//
// It is a util.Source: a goroutine that polls a completion queue of the endpoint empties the rings.
// If none polls, the peer's frameWake makes the stream's reader do it. A wakeup is requested by:
//
//	remote data  only while readers are parked: the data stays in the ring until the queue is read
//	messages     always, unless a reader spins: receives, answers and counters must progress without
//	             a reader; a timer detects whether a reader still spins
//
// mu is held while the rings are emptied. A goroutine that finds mu locked leaves the work to the
// holder. Hooks and Finish run with mu held. They may call Drain again, which never waits for mu. A
// hook may also run with locks of receive queues and of the stream held, which messages need. So if
// there is a hook, only serve receives messages.
type inbox struct {
	path *dataPath
	cq   *util.CQ // of receives and remote data
	tx   *util.CQ // of messages
	feed *receive.Feed

	mu       sync.Mutex
	notices  ring.Reader
	proven   uint64 // ticket of the last grant that passed check; 0: none yet
	answers  ring.Reader
	messages ring.MessageReader
	replies  ring.Writer // our answers, in the peer's memory
	incoming incoming
	armed    int                 // parked readers
	polls    int                 // polls that found nothing
	late     []fabric.Completion // remote data that the queue had no room for when the connection ended
	broken   bool                // the peer broke the protocol
	stopped  bool
	timer    *time.Timer // runs while spins is set; nil if messages do not use the rings
	period   time.Duration

	again atomic.Bool // the holder of mu must check again
	spins atomic.Bool // a reader polls continuously; written with mu held
}

var _ util.Source = (*inbox)(nil)

const (
	// spinPolls is after how many polls in a row without an entry a reader counts as spinning.
	spinPolls = 64
	// spinTime is how long after its last poll a reader still counts as spinning. Entries that
	// arrive in this time wait until it is over. It doubles while the reader keeps spinning, up to
	// spinMost: a timer every 2 ms on both sides slowed a transfer by 5 % on 2 cores.
	spinTime = 2 * time.Millisecond
	spinMost = 16 * time.Millisecond
)

// start enables reading of the rings.
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

// Drain is called by the readers of the queues; see util.Source. If mu is held, it leaves the work
// to the holder. That is another reader, or this goroutine if the queue's hook reads during a push.
// A reader calls Arm before it parks. So the holder knows of it, and requests frameWake before it
// leaves an entry in the ring.
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

// work empties the rings and requests a wakeup if one is wanted. It leaves entries only if a queue
// is full or no receive is posted. It checks at most twice: an honest peer that adds an entry after
// that wakes this side.
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

// polled counts a poll of the rings, and distinguishes a spinning reader from one that polls
// occasionally.
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

// tick is the timer's function. It checks whether the reader still spins.
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

// ask requests frameWake if a wakeup is wanted. It reports whether the peer did not know of the
// request yet.
func (b *inbox) ask(messages bool) (asked bool) {
	if b.armed > 0 {
		asked = b.notices.AskForWake()
	}
	if messages && (b.armed > 0 || !b.spins.Load()) {
		asked = b.answers.AskForWake() || asked
	}
	return asked
}

// takeNotices moves remote data to the queue until the queue is full.
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

// check refuses remote data of a write that the peer cannot have made, because it has not shown the
// key of a writable region for this grant.
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

// takeAnswers ends our messages that the peer has answered.
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

// Arm counts the parked readers; see util.Source.
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
		_, _ = b.takeAnswers() // ignore the error: the connection has already ended for another cause
	}
}

// stop empties the rings before their memory is unmapped. Remote data for which the queue has no
// room is kept in late for the queue's readers.
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
	for range ring.Entries { // bounded, even if the peer keeps adding entries
		e, ok, err := b.notices.Next()
		if !ok || err != nil || b.check(e) != nil {
			break
		}
		b.notices.Take()
		b.late = append(b.late, remoteWrite(b.path.ep.Source(), e))
	}
	b.drainLate()
}
