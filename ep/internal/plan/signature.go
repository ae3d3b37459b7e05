// SPDX-License-Identifier: MIT

package plan

import "mori/native/abi"

// SignatureBits is the width of a signature. A flag of a rank is
//
//	number of the call << SignatureBits | signature
const SignatureBits = abi.EPSignatureBits

// Signature mixes the arguments that all ranks of a call must have alike into SignatureBits bits
// (FNV-1a over their bytes, folded). Ranks that made different calls notice it by the signature,
// instead of reading each other's rows wrongly.
func Signature(values ...uint64) uint64 {
	h := uint64(14695981039346656037)
	for _, v := range values {
		for range 8 {
			h = (h ^ v&0xff) * 1099511628211
			v >>= 8
		}
	}
	h ^= h >> 32
	return (h ^ h>>16) & (1<<SignatureBits - 1)
}
