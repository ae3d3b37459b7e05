// SPDX-License-Identifier: MIT

package pybind

import (
	"encoding/json"
	"fmt"
	"strings"

	"mori/core/logging"
	"mori/io"
	"mori/pybind/handle"
)

var engines = handle.Table[*io.Engine]{What: "engine"}

// EngineNew creates an engine and returns its handle.
func EngineNew(key string, host string, port int) (id uint64, err error) {
	defer guard(&err)
	e, err := io.NewEngine(key, io.EngineConfig{Host: host, Port: port})
	if err != nil {
		return 0, err
	}
	return engines.Add(e), nil
}

// EngineClose closes the engine and its handle. It ignores a handle that is already closed.
func EngineClose(engine uint64) (n int, err error) {
	defer guard(&err)
	if e, ok := engines.Remove(engine); ok {
		return 1, e.Close()
	}
	return 0, nil
}

// EngineDesc returns the engine's descriptor as JSON, with its packed form in hex.
func EngineDesc(engine uint64) (text string, err error) {
	defer guard(&err)
	e, err := engines.Get(engine)
	if err != nil {
		return "", err
	}
	return engineDescJSON(e.Desc())
}

// EngineCreateBackend creates a backend. config is empty, or JSON that overrides the defaults.
func EngineCreateBackend(engine uint64, kind int, config string) (n int, err error) {
	defer guard(&err)
	e, err := engines.Get(engine)
	if err != nil {
		return 0, err
	}
	cfg := io.DefaultBackendConfig()
	if config != "" {
		if err := json.Unmarshal([]byte(config), cfg); err != nil {
			return 0, coded("E_ARG", fmt.Errorf("backend config: %w", err))
		}
	}
	return 0, e.CreateBackend(io.BackendType(kind), cfg)
}

// EngineRemoveBackend removes a backend.
func EngineRemoveBackend(engine uint64, kind int) (n int, err error) {
	defer guard(&err)
	e, err := engines.Get(engine)
	if err != nil {
		return 0, err
	}
	return 0, e.RemoveBackend(io.BackendType(kind))
}

// EngineRegisterRemote registers a peer by its packed descriptor in hex.
func EngineRegisterRemote(engine uint64, packed string) (n int, err error) {
	defer guard(&err)
	e, d, err := engineAndPeer(engine, packed)
	if err != nil {
		return 0, err
	}
	return 0, e.RegisterRemoteEngine(d)
}

// EngineDeregisterRemote deregisters a peer by its packed descriptor in hex.
func EngineDeregisterRemote(engine uint64, packed string) (n int, err error) {
	defer guard(&err)
	e, d, err := engineAndPeer(engine, packed)
	if err != nil {
		return 0, err
	}
	return 0, e.DeregisterRemoteEngine(d)
}

func engineAndPeer(engine uint64, packed string) (*io.Engine, io.EngineDesc, error) {
	e, err := engines.Get(engine)
	if err != nil {
		return nil, io.EngineDesc{}, err
	}
	d, err := engineDescFromHex(packed)
	return e, d, err
}

// EngineRegisterMemory registers size bytes at ptr and returns the descriptor as JSON.
func EngineRegisterMemory(engine uint64, ptr uint64, size uint64, device int, loc int) (text string, err error) {
	defer guard(&err)
	e, err := engines.Get(engine)
	if err != nil {
		return "", err
	}
	d, err := e.RegisterMemory(ptr, size, device, io.MemoryLocation(loc))
	if err != nil {
		return "", err
	}
	return memoryDescJSON(d)
}

// EngineDeregisterMemory deregisters a region by its packed descriptor in hex.
func EngineDeregisterMemory(engine uint64, packed string) (n int, err error) {
	defer guard(&err)
	e, err := engines.Get(engine)
	if err != nil {
		return 0, err
	}
	d, err := memoryDescFromHex(packed)
	if err != nil {
		return 0, err
	}
	return 0, e.DeregisterMemory(d)
}

// EngineDescribe returns how the engine reaches its peers, as JSON.
func EngineDescribe(engine uint64) (text string, err error) {
	defer guard(&err)
	e, err := engines.Get(engine)
	if err != nil {
		return "", err
	}
	return toJSON(e.Describe())
}

// SetLogLevel sets the log level of mori.io.
func SetLogLevel(level string) (n int, err error) {
	defer guard(&err)
	logging.SetLevel("io", level)
	return 0, nil
}

// EngineStats returns the statistics of the engine's transfers, as JSON.
func EngineStats(engine uint64) (text string, err error) {
	defer guard(&err)
	e, err := engines.Get(engine)
	if err != nil {
		return "", err
	}
	return toJSON(e.Stats())
}

// EngineTrace returns the last transfers as trace-event JSON.
func EngineTrace(engine uint64) (text string, err error) {
	defer guard(&err)
	e, err := engines.Get(engine)
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
	e, err := engines.Get(engine)
	if err != nil {
		return "", err
	}
	if tag, ok := e.InboundTag(key, uid); ok {
		return toJSON(tag)
	}
	return toJSON(nil)
}
