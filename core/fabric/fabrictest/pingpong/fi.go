// SPDX-License-Identifier: MIT

package pingpong

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fiDeadline bounds one run of fi_pingpong.
const fiDeadline = 30 * time.Second

// Run has fi_pingpong move iters messages of size bytes each way, between two processes of this
// host, and returns the microseconds of a transfer. provider and epType are libfabric's:
// "tcp;ofi_rxm" and "rdm". Without fi_pingpong here, or without that provider in it, ok is false
// and the log says why.
func Run(b testing.TB, provider, epType string, size, iters int) (usPerTransfer float64, ok bool) {
	b.Helper()
	path, err := exec.LookPath("fi_pingpong")
	if err != nil {
		b.Log("no comparison:", err)
		return 0, false
	}
	for range 3 { // the port that is free now may be taken in a moment
		usPerTransfer, err = runOnce(path, provider, epType, size, iters)
		if err == nil {
			return usPerTransfer, true
		}
	}
	b.Logf("no comparison: fi_pingpong -p %q -e %s -S %d: %v", provider, epType, size, err)
	return 0, false
}

func runOnce(path, provider, epType string, size, iters int) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fiDeadline)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	args := []string{"-p", provider, "-e", epType, "-S", strconv.Itoa(size), "-I", strconv.Itoa(iters)}
	server := exec.CommandContext(ctx, path, append(args, "-B", port)...)
	if err := server.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = server.Process.Kill() // done, or of no use without its client
		_ = server.Wait()
	}()
	for {
		out, err := exec.CommandContext(ctx, path, append(args, "-P", port, "127.0.0.1")...).CombinedOutput()
		if us, perr := parse(string(out)); perr == nil {
			return us, nil
		} else if err == nil || ctx.Err() != nil || !strings.Contains(string(out), "refused") {
			return 0, fmt.Errorf("%w in %q", perr, out)
		}
		time.Sleep(20 * time.Millisecond) // the server does not listen yet, and has no way to say so
	}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if cerr := l.Close(); err == nil {
		err = cerr
	}
	return port, err
}

// parse finds the column usec/xfer in what fi_pingpong prints: a line of titles and one of values.
func parse(out string) (float64, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, line := range lines[:len(lines)-1] {
		titles, values := strings.Fields(line), strings.Fields(lines[i+1])
		for k, title := range titles {
			if title == "usec/xfer" && k < len(values) && len(values) == len(titles) {
				return strconv.ParseFloat(values[k], 64)
			}
		}
	}
	return 0, fmt.Errorf("no usec/xfer")
}
