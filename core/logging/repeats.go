// SPDX-License-Identifier: MIT

package logging

import (
	"strings"
	"sync"
	"time"
)

const (
	// repeatEvery is how long similar lines are only counted.
	repeatEvery = 10 * time.Second
	// maxKinds limits the kinds of lines that are counted, and those counted by peer. Lines of
	// further kinds are written.
	maxKinds, maxByPeer = 2048, 1024
)

// A limiter writes the first of several similar lines, counts the others for a while, and then
// writes the first again with their number. Similar lines are about one peer and differ only in
// numbers: if a peer dies with a thousand pending transfers, one line has the reason, and another
// the number.
type limiter struct {
	every time.Duration

	mu    sync.Mutex
	kinds map[string]*kind
}

// A kind is the counter of similar lines.
type kind struct{ more int }

// admit reports whether to write the line. If similar lines follow within l.every, summary is
// called once with their number.
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

// withoutNumbers replaces each number in text by #. A digit after a letter belongs to a name, such
// as a peer's, and stays, as does what follows it, unless that is a number.
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
