// SPDX-License-Identifier: MIT

// Package repo holds tests about the repository as a whole: which package may
// import which, how files are formatted and named, what the built extension
// links. They read the files of the tree themselves, so their verdict never
// comes from a test cache that has not seen the change.
package repo
