// SPDX-License-Identifier: MIT

package fabrictest

var endCases, queueCases, loadCases []testCase
