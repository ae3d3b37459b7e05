// SPDX-License-Identifier: MIT

// Package topology describes this host: CPUs, NUMA nodes, network and RDMA devices, GPUs,
// how far they are from each other, and which NICs suit which memory. Scan is pure over a file
// system, so it is tested on recorded trees; it opens no device and needs no privilege.
//
//	h := topology.Scan(os.DirFS("/"))
//	o, err := topology.Configured() // what the environment says; err is for the log
//	picks, err := h.NICsFor(topology.AtGPU("0000:1b:00.0"), 2, o)
//	for _, p := range picks {
//		log.Info("rail", "nic", p.Name(), "why", p.Why)
//	}
//
// A NIC here is a port of an RDMA device, and a [Rail] one that transfers may use. [Host.Rails]
// leaves out what is down, what cannot connect queue pairs, what has another link layer than the
// rest and what is much slower, and says so. Its index counts all that the list of devices allows,
// so it stays the same when a port goes down, and means the same NIC on hosts that are alike.
//
// [Host.NICsFor] answers by distance first. GPUs that are as near to the same NICs share them out:
// with as many NICs as GPUs each has its own, with fewer each serves as many GPUs as the others,
// give or take one. The answer depends on the host and on the settings alone, so that processes
// which serve one GPU each agree without a word between them.
//
// [Host.Merge] takes what a library knows of the devices, for those that sysfs does not show or
// shows otherwise. Hosts are values: not safe to change while others read them.
//
// What is known of vendors' parts beyond what they report themselves is here, too: [FirmwareFloor],
// [RDMAModule], [Host.GPUDirect].
package topology
