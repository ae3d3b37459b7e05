// SPDX-License-Identifier: MIT

package pybind

// DeviceEnablePeer lets copies of a GPU go straight to and from all memory of another. It may be
// repeated, and lasts.
func DeviceEnablePeer(number int, peer int) (n int, err error) {
	defer guard(&err)
	d, err := gpuAt(number)
	if err != nil {
		return 0, err
	}
	p, err := gpuAt(peer)
	if err != nil || p == d {
		return 0, err
	}
	return 0, d.EnablePeer(p)
}
