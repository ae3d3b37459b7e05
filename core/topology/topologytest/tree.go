// SPDX-License-Identifier: MIT

package topologytest

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

//go:embed testdata/*.txt
var files embed.FS

// Names lists the hosts.
func Names(tb testing.TB) []string {
	tb.Helper()
	entries, err := files.ReadDir("testdata")
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".txt"))
	}
	return names
}

// Tree returns the file system of a host. Tests may change it.
func Tree(tb testing.TB, name string) fstest.MapFS {
	tb.Helper()
	text, err := files.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		tb.Fatal(err)
	}
	tree, err := Parse(string(text))
	if err != nil {
		tb.Fatalf("host %s: %v", name, err)
	}
	return tree
}

// Parse creates the file system of a host from the package's text format.
func Parse(text string) (fstest.MapFS, error) {
	b := builder{tree: fstest.MapFS{}, uverbs: map[string]int{}}
	b.file("sys/devices/system/cpu/online", "0-223")
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) == 1 {
			return nil, fmt.Errorf("line %d: %q has no place or name", n+1, line)
		}
		if err := b.add(words[0], words[1], words[2:]); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return b.tree, nil
}

type builder struct {
	tree   fstest.MapFS
	uverbs map[string]int // the number of each RDMA device
}

func (b builder) file(name, text string) { b.tree[name] = &fstest.MapFile{Data: []byte(text + "\n")} }

// link makes name a link to a path below sys.
func (b builder) link(name, to string) {
	up := strings.Repeat("../", strings.Count(name, "/")-1)
	b.tree[name] = &fstest.MapFile{Mode: fs.ModeSymlink | 0o777, Data: []byte(up + to)}
}

// add creates the files of one line.
func (b builder) add(kind, where string, words []string) error {
	is := map[string]string{"node": "-1", "link": "InfiniBand", "state": "ACTIVE", "type": "CA", "port": "1"}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("%q: want key=value", word)
		}
		is[key] = value
	}
	switch kind {
	case "node":
		return b.numa(where, is)
	case "load":
		b.file("sys/module/"+where+"/initstate", "live")
	case "gpu":
		vendor := map[string]string{"nvidia": "0x10de", "amd": "0x1002"}[is["vendor"]]
		if vendor == "" {
			return fmt.Errorf("vendor %q", is["vendor"])
		}
		b.pci(where, vendor, "0x030200", is["node"])
	case "net":
		at := b.pci(where, "0x15b3", "0x020000", is["node"])
		b.net(at, is["name"], is)
		if is["driver"] != "" {
			b.link("sys/"+at+"/driver", "bus/pci/drivers/"+is["driver"])
		}
	case "ib":
		b.port(b.pci(where, "0x15b3", "0x020700", is["node"]), is)
	case "soft":
		at := "devices/virtual/infiniband/" + is["name"]
		b.class("infiniband", is["name"], at)
		b.file("sys/"+at+"/parent", is["parent"])
		b.ports("sys/"+at, is)
	default:
		return fmt.Errorf("%q: want node, load, gpu, net, ib or soft", kind)
	}
	return nil
}

func (b builder) numa(id string, is map[string]string) error {
	gib, err := strconv.Atoi(is["gib"])
	if err != nil {
		return fmt.Errorf("gib=%q: want a number", is["gib"])
	}
	at := "sys/devices/system/node/node" + id
	b.file(at+"/cpulist", is["cpus"])
	b.file(at+"/meminfo", fmt.Sprintf("Node %s MemTotal:       %d kB", id, gib<<20))
	return nil
}

// pci creates a PCI device and returns its folder below sys.
func (b builder) pci(where, vendor, class, node string) string {
	at := "devices/" + where
	b.file("sys/"+at+"/vendor", vendor)
	b.file("sys/"+at+"/class", class)
	b.file("sys/"+at+"/numa_node", node)
	b.link("sys/bus/pci/devices/"+path.Base(where), at)
	return at
}

func (b builder) class(class, name, at string) { b.link("sys/class/"+class+"/"+name, at) }

func (b builder) net(device, name string, is map[string]string) {
	at := device + "/net/" + name
	b.class("net", name, at)
	b.link("sys/"+at+"/device", device)
	b.file("sys/"+at+"/operstate", map[bool]string{true: "up", false: "down"}[is["state"] == "ACTIVE"])
	b.file("sys/"+at+"/speed", is["mbps"])
}

func (b builder) port(device string, is map[string]string) {
	at := device + "/infiniband/" + is["name"]
	b.class("infiniband", is["name"], at)
	b.link("sys/"+at+"/device", device)
	b.ports("sys/"+at, is)
}

func (b builder) ports(at string, is map[string]string) {
	if _, ok := b.uverbs[is["name"]]; !ok {
		b.uverbs[is["name"]] = len(b.uverbs)
		b.file(fmt.Sprintf("sys/class/infiniband_verbs/uverbs%d/ibdev", b.uverbs[is["name"]]), is["name"])
	}
	b.file(at+"/node_type", map[string]string{"CA": "1: CA", "RNIC": "4: RNIC"}[is["type"]])
	at += "/ports/" + is["port"]
	b.file(at+"/state", map[bool]string{true: "4: ", false: "1: "}[is["state"] == "ACTIVE"]+is["state"])
	b.file(at+"/link_layer", is["link"])
	if is["gbps"] != "" {
		b.file(at+"/rate", is["gbps"]+" Gb/sec (4X)")
	}
	if is["netdev"] != "" {
		b.file(at+"/gid_attrs/ndevs/0", is["netdev"])
	}
}
