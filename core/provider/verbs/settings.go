// SPDX-License-Identifier: MIT

package verbs

import (
	"fmt"
	"strconv"
	"strings"

	"mori/core/fabric"
	"mori/native/verbs"
)

// Settings configure the use of NICs. They are read when a fabric opens. The zero value is valid,
// except for GIDIndex.
type Settings struct {
	// Devices are the allowed NICs, best first: "mlx5_0", or "mlx5_0:2" for a port other than the
	// first active one. Empty: all active NICs, in the library's order.
	Devices []string

	// Indices are the numbers of Devices, if hosts have the same devices. With Affinity, the rails of
	// a connection join devices with the same index, as far as both sides have them. Otherwise they
	// join the first of one side with the first of the other.
	Indices  []int
	Why      []string // for each of Devices: why it was chosen, for Path
	Affinity bool

	Rails int // devices of a connection, as far as both sides have and want them; 0 is 1
	QPs   int // queue pairs of a rail, as far as both sides want them; 0 is 1

	GIDIndex     int // in the port's table; -1: the best, see nics.ChooseGID
	MTU          int // most bytes of a packet's payload; 0: the port's
	SL           uint8
	TrafficClass uint8

	SendWR  int // pending work requests on a queue pair; 0 is 1024. Less if the device supports less
	SendSGE int // local pieces of a work request; 0 is 4. Less if the device supports less
	// Receives posted to a queue pair, for remote data of the peer's writes; 0 is 128. Less if the
	// device supports less
	RecvWR int
	Inline int // bytes of a write without registered memory; 0 is 64, -1 none. More if the device gives more

	// Entries of a rail's completion queue; 0: as many as its queue pairs need. Fewer entries reduce
	// the number of pending work requests
	CQE       int
	PostBatch int // work requests posted with one call; 0: as many as the queue has room for

	// While ops are pending, poll for a millisecond after the last completion before sleeping;
	// otherwise for 30 us
	Polling bool
	Relaxed bool // relaxed ordering of NICs' writes to memory, where they support it

	// Register GPU memory with dma-buf first, and with a peer memory module if that fails; otherwise
	// in the opposite order
	DMABuf bool

	NoEvents bool // do not read the devices' events: only retries detect a port that goes down

	Timeout uint8 // of a packet's acknowledgement, 4.096 us * 2^Timeout; 0 is 18, which is 1.1 s
	Retries uint8 // of a packet, up to 7, which means no limit on soft-RoCE; 0 is 6
}

const (
	maxRails  = 8
	maxQPs    = 16
	maxInline = 4096
)

// filled returns s with defaults for zero values, or an error that wraps fabric.ErrInvalid.
func (s Settings) filled() (Settings, error) {
	for _, v := range []struct {
		name     string
		at       *int
		def, max int
	}{
		{"rails", &s.Rails, 1, maxRails}, {"queue pairs", &s.QPs, 1, maxQPs}, {"send work requests", &s.SendWR, 1024, 1 << 16},
		{"receives", &s.RecvWR, 128, 1 << 15},
		{"local pieces", &s.SendSGE, 4, 64}, {"inline bytes", &s.Inline, 64, maxInline},
	} {
		if *v.at == 0 {
			*v.at = v.def
		}
		if (*v.at < 1 && v.at != &s.Inline) || *v.at < -1 || *v.at > v.max {
			return s, fmt.Errorf("verbs settings: %d %s, want 1 to %d: %w", *v.at, v.name, v.max, fabric.ErrInvalid)
		}
	}
	s.Inline = max(0, s.Inline)
	if s.CQE < 0 || s.PostBatch < 0 {
		return s, fmt.Errorf("verbs settings: completion queue of %d, post of %d, want 0 or more: %w", s.CQE, s.PostBatch, fabric.ErrInvalid)
	}
	if s.Timeout == 0 {
		s.Timeout = 18
	}
	if s.Retries == 0 {
		s.Retries = 6
	}
	if s.Timeout > 31 || s.Retries > 7 {
		return s, fmt.Errorf("verbs settings: timeout %d and %d retries, want up to 31 and 7: %w", s.Timeout, s.Retries, fabric.ErrInvalid)
	}
	return s, nil
}

// depths returns the sends and receives of each of qps queue pairs, and the entries of a completion
// queue that they cannot overrun.
func (s *Settings) depths(d *verbs.DeviceAttr, qps int) (sends, recvs, entries int, err error) {
	sends, recvs = min(s.SendWR, d.MaxQPWR), min(s.RecvWR, d.MaxQPWR)
	entries = qps * (sends + recvs + 1)
	most := s.CQE
	if most == 0 || d.MaxCQE > 0 && d.MaxCQE < most {
		most = d.MaxCQE
	}
	if most == 0 || entries <= most {
		return sends, recvs, max(entries, min(s.CQE, most)), nil
	}
	each := most/qps - 1
	recvs = min(recvs, each/2)
	if sends = min(sends, each-recvs); recvs < 1 {
		return 0, 0, 0, fmt.Errorf("%d queue pairs share a completion queue of %d entries, want at least %d: %w", qps, most, 3*qps, fabric.ErrNotSupported)
	}
	return sends, recvs, most, nil
}

// wireDepths returns the sends and receives of the queue pair for messages, and the completion
// queue entries for it and the other queue pairs together. All are 0 if the device supports too
// few.
func wireDepths(d *verbs.DeviceAttr, others int) (sends, recvs, entries int) {
	sends, recvs = min(wireSends, d.MaxQPWR), min(wireRecvs, d.MaxQPWR)
	if most := d.MaxMRSize / wireBytes; most > 0 && most < uint64(recvs) {
		sends, recvs = min(sends, int(most)), int(most)
	}
	entries = others + sends + recvs + 1
	if sends < wireLeast || recvs < wireLeast || d.MaxCQE > 0 && entries > d.MaxCQE {
		return 0, 0, 0
	}
	return sends, recvs, entries
}

// splitPort parses "mlx5_0:2". The port is 0 if it is left out.
func splitPort(device string) (name string, port int, err error) {
	name, text, named := strings.Cut(device, ":")
	if named {
		if port, err = strconv.Atoi(text); err != nil || port < 1 || port > 255 {
			return "", 0, fmt.Errorf("device %q: want NAME or NAME:PORT: %w", device, fabric.ErrInvalid)
		}
	}
	return name, port, nil
}
