// SPDX-License-Identifier: MIT

// Package doctor makes the report of mori doctor: what this host has, which path each kind of peer
// gets, and why no better one. Each provider answers for itself, by the Diagnose function of its
// fabric.Registration.
package doctor
