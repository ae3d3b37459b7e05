// SPDX-License-Identifier: MIT

package pybind

// version is the one place where the version of this project is written;
// make generate copies it to python/mori/_version.py.
const version = "0.1.0"

// Version returns the version of the extension, as in "1.2.3".
func Version() string { return version }
