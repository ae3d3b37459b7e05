// SPDX-License-Identifier: MIT

// Package nics finds the RDMA devices of this host. It reports which are usable, for which memory,
// and why the others are not.
//
//   - Host lists the devices, as libibverbs reports them. Choice has the environment's settings for
//     them. Unusable and Missing say why no device is usable.
//   - ChooseGID selects the address of a port.
//   - Look opens each device, and makes the Report for mori doctor.
package nics
