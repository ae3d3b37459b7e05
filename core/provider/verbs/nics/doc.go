// SPDX-License-Identifier: MIT

// Package nics finds the RDMA devices of this host, and says which can be used, for which memory,
// and what stands in the way of the others.
//
//   - Host is this host as libibverbs sees its devices, and Choice what the environment says of
//     them. Unusable and Missing say why none can be used.
//   - ChooseGID picks the address of a port.
//   - Look opens each device, and makes the Report for mori doctor.
package nics
