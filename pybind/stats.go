// SPDX-License-Identifier: MIT

package pybind

import "strings"

// EngineStats returns what the engine's transfers did and do, as JSON.
func EngineStats(engine uint64) (text string, err error) {
	defer guard(&err)
	e, err := engines.get(engine)
	if err != nil {
		return "", err
	}
	return toJSON(e.Stats())
}

// EngineTrace returns the last transfers as trace-event JSON.
func EngineTrace(engine uint64) (text string, err error) {
	defer guard(&err)
	e, err := engines.get(engine)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = e.WriteTrace(&out)
	return out.String(), err
}

// EngineInboundTag returns the tag of a peer's transfer as JSON: a string, or null.
func EngineInboundTag(engine uint64, key string, uid uint64) (text string, err error) {
	defer guard(&err)
	e, err := engines.get(engine)
	if err != nil {
		return "", err
	}
	if tag, ok := e.InboundTag(key, uid); ok {
		return toJSON(tag)
	}
	return toJSON(nil)
}
