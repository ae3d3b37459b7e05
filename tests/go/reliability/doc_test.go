// SPDX-License-Identifier: MIT

// Package reliability proves what docs/reliability.md promises of mori.io: engines in processes of
// their own, on hosts whose network is cut, slow, lossy or lying, that are stopped and killed at
// bad moments. After everything the bytes are held against a model.
//
// The test binary is also the peer: started with MORI_TEST_PEER it obeys commands on its standard
// input (peer_test.go).
package reliability
