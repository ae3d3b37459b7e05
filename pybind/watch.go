// SPDX-License-Identifier: MIT

package pybind

import (
	"strconv"
	"strings"

	"mori/io"
	"mori/pybind/handle"
)

var watchers = handle.Table[*io.Watcher]{What: "watcher"}

// WatcherOpen creates a watcher of statuses for one event loop.
func WatcherOpen() (id uint64, err error) {
	defer guard(&err)
	w, err := io.NewWatcher()
	if err != nil {
		return 0, err
	}
	return watchers.Add(w), nil
}

// WatcherFD returns the descriptor that is readable while WatcherTake would return tokens.
func WatcherFD(id uint64) (fd int, err error) {
	defer guard(&err)
	w, err := watchers.Get(id)
	if err != nil {
		return -1, err
	}
	return w.FD(), nil
}

// WatcherTake returns the tokens of the statuses that left IN_PROGRESS, in decimal, separated by
// spaces.
func WatcherTake(id uint64) (tokens string, err error) {
	defer guard(&err)
	w, err := watchers.Get(id)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i, token := range w.Take() {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatUint(token, 10))
	}
	return b.String(), nil
}

// WatcherClose frees the watcher and its descriptor.
func WatcherClose(id uint64) (n int, err error) {
	defer guard(&err)
	if w, ok := watchers.Remove(id); ok {
		return 0, w.Close()
	}
	return 0, nil
}

// StatusWatch makes the watcher receive token when the status leaves IN_PROGRESS, or now if it
// already has.
func StatusWatch(status uint64, watcher uint64, token uint64) (n int, err error) {
	defer guard(&err)
	s, err := statuses.Get(status)
	if err != nil {
		return 0, err
	}
	w, err := watchers.Get(watcher)
	if err != nil {
		return 0, err
	}
	s.Watch(w, token)
	return 0, nil
}

// EngineFD returns a descriptor that becomes readable when transfers of the engine end.
func EngineFD(engine uint64) (fd int, err error) {
	defer guard(&err)
	e, err := engines.Get(engine)
	if err != nil {
		return -1, err
	}
	return e.FD()
}
