// SPDX-License-Identifier: MIT

// Package config is the one place where environment variables are read.
//
// Python programs set os.environ after import, and Go keeps the environment of the process start,
// so variables are looked up at the moment of use through a Lookup function: os.LookupEnv by
// default, C's getenv once the Python extension has called SetLookup. Callers read a value here,
// once, and pass it down.
//
// A malformed value never fails an operation: the accessors return the default and an error that
// names variable, value and what is legal, for the caller to log. Variables lists all names for
// people and for the command line.
package config
