// SPDX-License-Identifier: MIT

package stream

import "fmt"

// HandBack gives an op that the Direct took, and moved no byte of, to the stream, as if RMA had answered false.
func (ep *Endpoint) HandBack(k Ticket) {
	s := ep.slots.lookup(k)
	if s == nil {
		panic(fmt.Sprintf("stream: op %#x handed back after its end", k))
	}
	if !ep.fate.enter() {
		return // the end of the connection ends the op
	}
	defer ep.fate.leave()
	var t todo
	ep.mu.Lock()
	ep.issueStream(s, &t)
	ep.mu.Unlock()
	ep.run(&t)
}
