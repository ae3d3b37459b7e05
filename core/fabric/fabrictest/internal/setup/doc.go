// SPDX-License-Identifier: MIT

// Package setup has the cases about objects before and after bytes move: what providers offer,
// connecting, the states and lifetimes of objects, and address vectors.
package setup
