// SPDX-License-Identifier: MIT

// Package identity identifies engines and proves their identity.
//
//   - ID names one incarnation of an engine.
//   - Signer and PublicKey are an engine's Ed25519 key pair, by which it proves its ID.
//   - Secret is shared by engines that may talk to each other. Its proofs are HMAC-SHA256.
package identity
