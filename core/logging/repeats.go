// SPDX-License-Identifier: MIT

package logging

import (
	"strings"
	"sync"
	"time"
)

const (
	// repeatEvery is how long lines like one that was written are only counted.
	repeatEvery = 10 * time.Second
	// maxKinds is how many kinds of lines are counted at a time, and for how many of them by peer.
	// Lines of further kinds are written.
	maxKinds, maxByPeer = 2048, 1024
)

// A limiter lets the first of several lines that are alike through, counts the others for a while,
// and then writes the first once more with their number. Lines are alike if they are about one peer
// and differ in numbers only: when a peer dies with a thousand transfers under way, one line has
// the reason, and another the number.
type limiter struct {
	every time.Duration

	mu    sync.Mutex
	kinds map[string]*kind
}

// A kind is what is counted of lines that are alike.
type kind struct{ more int }

// admit reports whether the line is to be written. If others like it come before l.every is over,
// summary is called once with their number.
func (l *limiter) admit(line, peer string, summary func(more int)) bool {
	key := withoutNumbers(line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kinds) < maxByPeer || l.kinds[key+"\x00"+peer] != nil {
		key += "\x00" + peer
	}
	if k, known := l.kinds[key]; known {
		k.more++
		return false
	}
	if len(l.kinds) >= maxKinds {
		return true
	}
	if l.kinds == nil {
		l.kinds = map[string]*kind{}
	}
	k := new(kind)
	l.kinds[key] = k
	time.AfterFunc(l.every, func() {
		l.mu.Lock()
		delete(l.kinds, key)
		more := k.more
		l.mu.Unlock()
		if more > 0 {
			summary(more)
		}
	})
	return true
}

// withoutNumbers puts # in the place of each number in text. A digit that follows a letter belongs
// to a name, such as that of a peer, and stays; so does what follows it, unless that is a number.
func withoutNumbers(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	name, number := false, false
	for i := range len(text) {
		c := text[i]
		digit := c >= '0' && c <= '9'
		switch {
		case digit && name:
			b.WriteByte(c)
		case digit || number && (c == 'x' || c >= 'a' && c <= 'f'):
			if !number {
				b.WriteByte('#')
			}
			number = true
		default:
			number = false
			name = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || name && c == '-'
			b.WriteByte(c)
		}
	}
	return b.String()
}
