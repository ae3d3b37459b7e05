// SPDX-License-Identifier: MIT

// Package topology describes this host: CPUs, NUMA nodes, network and RDMA devices, GPUs, their
// distances, and which NICs suit which memory. Scan only reads a file system, so it is tested on
// recorded trees. It opens no device and needs no privilege.
//
//	h := topology.Scan(os.DirFS("/"))
//	o, err := topology.Configured() // what the environment says; err is for the log
//	picks, err := h.NICsFor(topology.AtGPU("0000:1b:00.0"), 2, o)
//	for _, p := range picks {
//		log.Info("rail", "nic", p.Name(), "why", p.Why)
//	}
//
// A NIC here is a port of an RDMA device, and a [Rail] is one that transfers may use. [Host.Rails]
// excludes ports that are down, cannot connect queue pairs, have another link layer than most, or
// are much slower, with the reason. Its index counts all ports that the device list allows. So it
// does not change when a port goes down, and is the same on identical hosts.
//
// [Host.NICsFor] sorts by distance first. GPUs that are equally near to the same NICs share them:
// with as many NICs as GPUs each GPU has its own; with fewer, each NIC serves equally many GPUs,
// give or take one. The result depends only on the host and the settings, so processes with one GPU
// each agree without communication.
//
// [Host.Merge] adds what a library knows of the devices, for those that sysfs does not show or
// shows differently. Hosts are values: do not change one while others read it.
//
// Known facts about vendors' devices are here, too: [FirmwareFloor], [RDMAModule],
// [Host.GPUDirect].
package topology
