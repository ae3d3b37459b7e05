// SPDX-License-Identifier: MIT

package p2p

const childEnv = "MORI_P2P_CHILD"

func childMain() int { return 1 }
