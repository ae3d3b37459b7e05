// SPDX-License-Identifier: MIT

package core

// Pins reports whether a transport has NICs pin what is registered with it. All of a region is
// taken from the machine's memory then, whether it was ever touched or not, and local memory that
// is not registered goes another, slower way.
func Pins(name string) bool { return name == "verbs" }
