// SPDX-License-Identifier: MIT

// Package backend has the families of transports that a user asks for: XGMI, RDMA, TCP, FABRIC.
//
//   - A Backend has one Route for pairs of host memory, and one for pairs with GPU memory at one
//     end or both. A Route lists transports in order of preference.
//   - A Table has the backends of an engine and their shared state: the open transports and the
//     control server. It chooses the route of a pair of regions.
//   - Config has the settings of a backend.
package backend
