// SPDX-License-Identifier: MIT

package ep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/native/gpu/gputest"
	"mori/shmem"
)

const stuckVariable = "MORI_TEST_EP_STUCK"

// If a kernel does not end, Close and Finalize return nevertheless, and name it. Its memory is not
// freed, so the test needs a process of its own.
func TestCloseNamesAKernelThatDoesNotEnd(t *testing.T) {
	gputest.NeedEmulated(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestAStuckKernel$", "-test.v")
	c.Env = append(os.Environ(), stuckVariable+"=1", "FAKE_GPU_LATE=600000")
	out, err := c.CombinedOutput()
	for _, want := range []string{"CLOSE: close an op: the kernel of combine of rank 0 did not end after it was aborted", "FINALIZE: ", "the heap on the GPU was not freed"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the process did not say %q: %v\n%s", want, err, out)
		}
	}
}

// TestAStuckKernel is that process.
func TestAStuckKernel(t *testing.T) {
	if os.Getenv(stuckVariable) == "" {
		t.Skip("this is not a process of TestCloseNamesAKernelThatDoesNotEnd")
	}
	all, err := device.Devices()
	if err != nil {
		t.Fatal(err)
	}
	w, err := shmem.Init(context.Background(), bootstrap.Local(1)[0], shmem.Config{Device: all[0], HeapSize: 16 << 20, Timeout: 20 * time.Second, NodeID: "node", Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	o, err := New(w, gpuConfig(1), Options{Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s, err := all[0].NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	o.SetStream(s.Handle())
	_, err = o.Dispatch(Batch{N: 0, Hidden: 48, Type: Float32})
	err = errors.Join(err, o.Combine(Output{Rows: o.Config().MaxRecv(), Hidden: 48, Type: Float32, InPlace: true}))
	if err != nil {
		t.Fatal(err)
	}
	_ = o.state.Break(ErrState) // so that Close does not wait for the kernel to end by itself
	fmt.Println("CLOSE:", o.Close())
	fmt.Println("FINALIZE:", w.Finalize(context.Background()))
	os.Exit(0)
}
