// SPDX-License-Identifier: MIT

package repo

import (
	"strings"
	"testing"
)

// decoderCalls take bytes apart, as package.function or order.method. A function that calls one of
// them is a decoder.
var decoderCalls = []string{
	"json.Unmarshal", "json.NewDecoder", "decode.Unmarshal", "decode.NewReader", "gob.NewDecoder", "xml.Unmarshal", "xml.NewDecoder",
	"binary.Read", "binary.Decode", "binary.Uvarint", "binary.Varint", "binary.ReadUvarint", "binary.ReadVarint",
	"io.ReadFull", "io.ReadAtLeast", "io.ReadAll", "hex.DecodeString", "hex.Decode", "base64.NewDecoder", "StdEncoding.DecodeString",
	"BigEndian.Uint16", "BigEndian.Uint32", "BigEndian.Uint64",
	"LittleEndian.Uint16", "LittleEndian.Uint32", "LittleEndian.Uint64",
	"NativeEndian.Uint16", "NativeEndian.Uint32", "NativeEndian.Uint64",
	"be.Uint16", "be.Uint32", "be.Uint64",
}

// bannedDecoders allocate the lengths that a message claims.
var bannedDecoders = []string{"msgpack.Unmarshal", "msgpack.NewDecoder"}

// trustedDecoders are decoders without a fuzz target, by the reason why none is needed: folder and
// function, or folder and type.method.
var trustedDecoders = map[string][]string{
	"options and descriptors of this process's own Python": {
		"pybind EngineCreateBackend", "pybind ShmemInitUniqueID", "pybind fromHex", "pybind interchangeReceive",
	},
	"the two processes of a benchmark or test":              {"core/fabric/fabrictest/pingpong start", "core/fabric/fabrictest/pingpong Serve", "pybind/capi receive"},
	"random bytes of this process":                          {"core/bootstrap planOf", "core/provider/verbs randomPSN", "io newSelf"},
	"words that this process writes, or kernels of its own": {"core/interchange receiver.post"},
	"operands of an atomic op, whose type gives their size": {"core/fabric/util/atomics load", "core/fabric/util/atomics load128"},
	"answers of this host's NIC or library":                 {"core/gpunic/mlx5/dv number", "core/provider/ofi addrText"},
	"a field of a message that is being written":            {"core/gpunic/mlx5 Field.Set", "core/gpunic/mlx5 Queue.path"},
	"a number of bytes that is a constant, into an array":   {"core/gpunic/emu/wire socket.read", "core/gpunic/emu/memory Change", "core/gpunic/emu/memory Record.Word", "core/gpunic/emu/memory StoreLast", "core/memory Sharer.answer", "core/provider/shm greeting.agree"},
	"a length that is compared with a constant before":      {"core/bootstrap diagnoser.late", "core/provider/ofi domain.Import"},
	"entries of the kernel, read to an array":               {"core/provider/internal/local Pages.Present"},
	"hex of an address, half as long as its text":           {"core/provider/ofi addrBytes"},
	"a regular file of this user, of at most 1 KiB":         {"core/bootstrap readID"},
	"a regular file of at most 1 MiB":                       {"ep/internal/launch readRegular"},
}

// countlessTargets are fuzz targets that decode nothing, and what they are given.
var countlessTargets = map[string]string{
	"native/hostmath FuzzConvert":     "numbers to compute with",
	"native/hostmath FuzzQuantBlocks": "numbers to compute with",
	"shmem/internal/arena FuzzArena":  "a sequence of calls",
}

// TestDecodersAreFuzzed: each function that takes foreign bytes apart is reached from the argument
// of decodetest.Bounded in a fuzz target of its package, or is in trustedDecoders with the reason.
func TestDecodersAreFuzzed(t *testing.T) {
	trusted := map[string]string{}
	for why, names := range trustedDecoders {
		for _, name := range names {
			if trusted[name] != "" {
				t.Errorf("%s is trusted twice", name)
			}
			trusted[name] = why
		}
	}
	for dir, p := range decoderPackages(t) {
		reached, countless := p.counted()
		for _, name := range countless {
			if why := countlessTargets[dir+" "+name]; why == "" {
				t.Errorf("%s of %s does not run its decoder inside decodetest.Bounded", name, dir)
			}
		}
		for _, f := range p.funcs {
			name := dir + " " + f.name
			for _, banned := range f.banned {
				t.Errorf("%s calls %s: package core/decode bounds what it allocates", name, banned)
			}
			switch _, ok := trusted[name]; {
			case len(f.decodes) == 0:
			case ok && reached[f]:
				t.Errorf("%s is trusted, but a fuzz target counts what it allocates: remove it from the list", name)
			case ok:
				delete(trusted, name)
			case !reached[f]:
				t.Errorf("%s calls %s, and no fuzz target reaches it inside decodetest.Bounded: write one, or say in trustedDecoders why its bytes are ours",
					name, strings.Join(f.decodes, ", "))
			}
		}
	}
	for name := range trusted {
		t.Errorf("%s is trusted, and is no decoder", name)
	}
}
