// SPDX-License-Identifier: MIT

// Abigen writes package native/abi: the structs, enumerations and constants of native/include that
// Go and kernels share.
//
//	go run ./tools/abigen
//
// The C++ headers are the description. Abigen compiles them with g++ (or $CXX) and reads sizes,
// offsets and values from the debug information, so that nobody counts bytes. It runs in the root
// of the repository.
package main

import (
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// A share is what Go needs from one namespace.
type share struct {
	namespace string   // without "mori::"
	prefix    string   // of names in Go
	headers   []string // below native/include/mori
	structs   []string
	enums     []string
	constants []string // names, or a name in Go, "=" and an expression
}

var shares = []share{
	{namespace: "device", headers: []string{"device/report.hpp"}, structs: []string{"WaitReport"}},
	{
		namespace: "device", headers: []string{"device/copy_stream.hpp", "device/spread_stream.hpp"},
		constants: []string{
			"kStreamStages", "StreamHeadBytes=streamSharedBytes(0)", "kSpreadStages",
			"SpreadHeadBytes=spreadSharedBytes(0)",
		},
	},
	{
		namespace: "ep", prefix: "EP", headers: []string{"ep/op.hpp", "ep/hosts.hpp", "ep/standard.hpp"},
		structs: []string{
			"Regions", "Notice", "Progress", "Op", "DispatchArgs", "CombineArgs", "CountLocalArgs", "Block",
			"HostsProgress", "Hosts", "HostsDispatchArgs", "HostsCombineArgs", "PackArgs", "UnpackArgs",
		},
		enums: []string{"Fault", "Phase", "Transport"},
		constants: []string{
			"kMostRanks", "kMostThreads", "kMostChunks", "kHeadBytes", "kLineBytes",
			"kSignatureBits", "kEpochShift", "kRowsBits",
		},
	},
	{
		namespace: "io", prefix: "IO", headers: []string{"io/copy_blocks.hpp"},
		structs: []string{"Segment", "CopyBlocksArgs"},
	},
	{
		namespace: "nic", prefix: "NIC", headers: []string{"nic/queue.hpp", "nic/work.hpp", "nic/kernels.hpp"},
		structs: []string{
			"Queue", "Annex", "Memory", "Work", "Outcome", "InterchangeArgs", "VerifyArgs", "PingPongArgs",
			"PostArgs",
		},
		enums: []string{"Provider", "Kind", "Posters"},
		constants: []string{
			"kCollapsed", "kNoDbr", "kEmulated", "kOk", "kStalled", "kTimedOut", "kRefused", "kSilent",
			"kFenced", "kSolicited", "kImmediate",
		},
	},
	{
		namespace: "proxy", prefix: "Proxy", headers: []string{"proxy/layout.hpp", "proxy/kernels.hpp"},
		structs: []string{
			"Command", "Detail", "Result", "Board", "State", "Queue", "PutOutcome", "InterchangeOutcome",
			"InterchangeSide",
		},
		enums: []string{"Kind", "Atomic"},
		constants: []string{
			"kPlaceBits", "kPeBits", "kBytesBits", "kKindShift", "kHasDetail", "kLapShift", "kWordShift",
			"kRegionShift", "kSignalRegionShift", "kTrouble",
			"kClosed", "kQueueVersion", "kRefused", "kTimeout", "kStopped",
		},
	},
	{
		namespace: "shmem", prefix: "Shmem", headers: []string{"shmem/state.hpp"},
		structs:   []string{"Peer", "NicPeer", "State"},
		enums:     []string{"Transport"},
		constants: []string{"kStateVersion"},
	},
}

const (
	headerDir  = "native/include"
	packageDir = "native/abi"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("abigen: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	files, err := generate(".")
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(packageDir, name), files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the files of package abi by name. root is the root of the repository.
func generate(root string) (map[string][]byte, error) {
	layouts, err := read(filepath.Join(root, headerDir), shares)
	if err != nil {
		return nil, fmt.Errorf("read the layouts of %s: %w", headerDir, err)
	}
	types, err := layouts.types()
	if err != nil {
		return nil, err
	}
	checks, err := layouts.checks()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"types.go": types, "layout_unsafe.go": checks}, nil
}
