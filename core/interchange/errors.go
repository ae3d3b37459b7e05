// SPDX-License-Identifier: MIT

package interchange

import "errors"

// The errors that callers check for.
var (
	ErrOrder = errors.New("interchange: the steps are out of order") // a step before the steps that it needs
	ErrWrong = errors.New("interchange: wrong bytes arrived")        // received bytes differ from the sent ones
)
