// SPDX-License-Identifier: MIT

package interchange

import "errors"

// The causes that callers branch on.
var (
	ErrOrder = errors.New("interchange: the steps are out of order") // a step before those that it needs
	ErrWrong = errors.New("interchange: wrong bytes arrived")        // what a measurement moved is not what it sent
)
