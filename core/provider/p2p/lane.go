// SPDX-License-Identifier: MIT

package p2p

import (
	"sync/atomic"
	"time"

	"mori/core/device"
)

// A direction is one direction of a device's link: its reads or its writes.
type direction struct {
	dev   *device.Device
	reads bool
}

// A lane is how a device copies in one direction.
type lane struct {
	copier *device.Copier
	queue  []*copyJob   // wait for room in the copier; under engine.mu
	flying atomic.Int32 // copies that have started and are not known to have ended

	// Of the poller.
	nsPerByte float64   // of recent copies
	missed    bool      // the last one had ended before the poller looked
	under     uint64    // bytes of the copies in progress
	ended     time.Time // when the poller saw the last one end
}

// A copyJob is one copy of a lane.
type copyJob struct {
	copyList
	lane  *lane
	owner copyOwner
	group any // of engine.cancel

	copy               device.Copy
	begun, look, until time.Time // look: when it may have ended; until: how long to spin then
	caught             bool      // it was in progress after look, so the time of its end is known
}

// A copyOwner is notified once when a copy ends, while the engine holds no lock. The owner may then
// reuse the job.
type copyOwner interface{ copied(err error) }

// reset prepares a job for another copy of its owner.
func (j *copyJob) reset() {
	*j = copyJob{copyList: copyList{segs: j.segs[:0]}, owner: j.owner, group: j.group}
}

// start makes the device copy. The bytes of an op are posted here.
func (j *copyJob) start() (device.Copy, error) {
	if len(j.blocks.DstOffsets) > 0 {
		return j.lane.copier.StartBlocks(j.blocks)
	}
	return j.lane.copier.Start(j.segs)
}

// expect sets when to poll a copy that has started. Copies of one device share its links, so it
// ends after those already in progress.
func (j *copyJob) expect() {
	j.lane.under += j.bytes
	takes := time.Duration(float64(j.lane.under) * j.lane.nsPerByte)
	j.look = j.begun.Add(takes - spinEarly)
	j.until = j.begun.Add(takes + spinFor)
	j.caught = false
}

// nap returns how long the poller need not poll j, or 0 when its end is expected.
func (j *copyJob) nap(now time.Time) time.Duration {
	j.caught = j.caught || now.After(j.look)
	if now.After(j.until) {
		j.look = now.Add(max(now.Sub(j.begun)/overdue, shortNap))
		j.until = j.look.Add(spinFor)
	}
	return max(0, j.look.Sub(now))
}

// leastBytes is the shortest copy from which the lane's speed is measured.
const leastBytes = 1 << 20

// measured records the lane's speed: the time since the copy began, or since the previous one
// ended, which shared the link with it.
func (j *copyJob) measured(now time.Time, err error) {
	ln := j.lane
	ln.flying.Add(-1)
	start := j.begun
	if ln.ended.After(start) {
		start = ln.ended
	}
	ln.under -= j.bytes
	ln.ended = now
	if err == nil && j.bytes >= leastBytes {
		ln.learn(float64(now.Sub(start))/float64(j.bytes), j.caught)
	}
}

// learn updates the expectation with a copy's time per byte. If a copy had ended before the poller
// looked, it took less than per. A poller that expects too much sleeps too long and measures its
// own sleep. So the expectation falls until the poller sees copies in progress.
func (ln *lane) learn(per float64, caught bool) {
	switch {
	case !caught && ln.missed:
		ln.nsPerByte = min(ln.nsPerByte, per) * 2 / 3
	case !caught: // perhaps by a little
		ln.nsPerByte = min(ln.nsPerByte, per) * 15 / 16
	case ln.nsPerByte == 0:
		ln.nsPerByte = per
	default:
		ln.nsPerByte += (per - ln.nsPerByte) / 4
	}
	ln.missed = !caught
}
