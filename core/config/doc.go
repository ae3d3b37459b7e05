// SPDX-License-Identifier: MIT

// Package config reads all environment variables.
//
// Python programs may set os.environ after import, but Go keeps the environment of the process
// start. So config looks up variables at the time of use, through a Lookup function: os.LookupEnv
// by default, C's getenv once the Python extension has called SetLookup. Callers read a value once
// and pass it down.
//
// A malformed value never fails an operation. The accessors return the default and an error that
// names the variable, the value and the legal values; the caller logs it. Variables lists all
// names, for documentation and for the command line.
package config
