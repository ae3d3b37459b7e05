// SPDX-License-Identifier: MIT

package pybind

import (
	"mori/core"
	"mori/core/config"
)

// Doctor returns what is on this host, and which path each kind of peer would get, as JSON.
func Doctor() (text string, err error) {
	defer guard(&err)
	return toJSON(core.Doctor())
}

// Environment returns the environment variables that mori reads, with meaning, default and present
// value, as JSON.
func Environment() (text string, err error) {
	defer guard(&err)
	return toJSON(config.Variables())
}

// UnknownVariables returns a message for each variable of the environment that has mori's prefix
// and that nothing reads, as a JSON list.
func UnknownVariables() (text string, err error) {
	defer guard(&err)
	return toJSON(append([]string{}, config.Unknown()...))
}
