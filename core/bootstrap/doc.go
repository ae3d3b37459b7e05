// SPDX-License-Identifier: MIT

// Package bootstrap lets ranks find each other and exchange small blobs before there is a faster way.
package bootstrap
