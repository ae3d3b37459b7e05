// SPDX-License-Identifier: MIT

// Package topologytest has hosts for tests: trees of /sys and /proc, based on public descriptions
// of machines.
//
//	h := topology.Scan(topologytest.Tree(t, "dgx-h100"))
//
// A host is a file in testdata with one item per line; "#" starts a comment:
//
//	node 0 cpus=0-55,112-167 gib=1024
//	gpu  pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1b:00.0 vendor=nvidia node=0
//	ib   pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0 name=mlx5_0 gbps=400 node=0
//	net  pci0000:00/0000:00:1c.0/0000:02:00.0 name=eno1 mbps=1000 node=0
//	soft - name=rxe0 link=Ethernet parent=eth0
//	load nvidia
//
// ib and soft also have link (default InfiniBand), state (ACTIVE), type (CA; RNIC is iWARP), port
// (1) and netdev: one line per port. net also has driver.
package topologytest
