// SPDX-License-Identifier: MIT

package pybind

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"mori/io"
)

func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

func fromHex(what, text string) ([]byte, error) {
	b, err := hex.DecodeString(text)
	if err != nil {
		return nil, coded("E_ARG", fmt.Errorf("packed %s descriptor: %w", what, err))
	}
	return b, nil
}

func engineDescFromHex(text string) (io.EngineDesc, error) {
	b, err := fromHex("engine", text)
	if err != nil {
		return io.EngineDesc{}, err
	}
	return io.UnpackEngineDesc(b)
}

func memoryDescFromHex(text string) (io.MemoryDesc, error) {
	b, err := fromHex("memory", text)
	if err != nil {
		return io.MemoryDesc{}, err
	}
	return io.UnpackMemoryDesc(b)
}

func engineDescJSON(d io.EngineDesc) (string, error) {
	return toJSON(map[string]any{"key": d.Key, "node_id": d.NodeID, "hostname": d.Hostname, "host": d.Host, "port": d.Port, "pid": d.PID,
		"packed": hex.EncodeToString(d.Pack())})
}

func memoryDescJSON(d io.MemoryDesc) (string, error) {
	return toJSON(map[string]any{"engine_key": d.EngineKey, "id": d.ID, "device_id": d.DeviceID, "device_bus_id": d.DeviceBusID, "numa_node": d.NUMANode,
		"data": d.Data, "size": d.Size, "loc": int(d.Loc), "ipc_handle": hex.EncodeToString(d.IPCHandle[:]), "ipc_offset": d.IPCOffset,
		"packed": hex.EncodeToString(d.Pack())})
}

// UnpackEngineDesc decodes n bytes at addr to JSON. The caller keeps the bytes alive.
func UnpackEngineDesc(addr uint64, n int) (text string, err error) {
	defer guard(&err)
	d, err := io.UnpackEngineDesc(bytesAt(addr, n))
	if err != nil {
		return "", err
	}
	return engineDescJSON(d)
}

// UnpackMemoryDesc decodes n bytes at addr to JSON. The caller keeps the bytes alive.
func UnpackMemoryDesc(addr uint64, n int) (text string, err error) {
	defer guard(&err)
	d, err := io.UnpackMemoryDesc(bytesAt(addr, n))
	if err != nil {
		return "", err
	}
	return memoryDescJSON(d)
}

// EmptyMemoryDesc returns an empty descriptor as JSON.
func EmptyMemoryDesc() (text string, err error) {
	defer guard(&err)
	return memoryDescJSON(io.NewMemoryDesc())
}
