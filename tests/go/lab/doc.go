// SPDX-License-Identifier: MIT

// Package lab is a network for tests: hosts in network namespaces, joined by a switch in this
// process that can cut, delay, slow, drop and corrupt packets.
//
//	l := lab.New(t)                  // skips without namespaces or TUN devices, with the reason
//	a, b := l.Host(), l.Host()
//	cmd := a.Command("program", b.Addr)
//	l.Cut(true)                      // no packet passes
//
// Each host has a TUN device with an address of 10.77.0.0/24; the switch reads IP packets from one
// and writes them to another. A corrupted packet gets a TCP checksum that fits, so that only a
// check of the contents finds it. Counters say what was done to how many packets, so a test can
// demand that its trouble did happen.
package lab
