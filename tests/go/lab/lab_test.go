// SPDX-License-Identifier: MIT

package lab_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"mori/tests/go/lab"
)

// TestMain is a server that echoes, when it is started as one.
func TestMain(m *testing.M) {
	if at := os.Getenv("LAB_ECHO"); at != "" {
		echo(at)
		return
	}
	if to := os.Getenv("LAB_ASK"); to != "" {
		fmt.Println(ask(to))
		return
	}
	os.Exit(m.Run())
}

func echo(at string) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// ask sends a megabyte and says how many bytes came back changed.
func ask(to string) string {
	c, err := net.DialTimeout("tcp", to, 20*time.Second)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(40 * time.Second))
	sent := make([]byte, 1<<20)
	for i := range len(sent) / 4 {
		binary.BigEndian.PutUint32(sent[4*i:], uint32(i)*2654435761)
	}
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil {
		return err.Error()
	}
	changed := 0
	for i := range got {
		if got[i] != sent[i] {
			changed++
		}
	}
	return fmt.Sprint("changed ", changed > 0)
}

// hosts starts an echo on one host and returns the other, with where to ask.
func hosts(t *testing.T) (l *lab.Lab, asks func() string) {
	t.Helper()
	l = lab.New(t)
	a, b := l.Host(), l.Host()
	server := b.Command(os.Args[0])
	server.Env = append(os.Environ(), "LAB_ECHO="+b.Addr+":7")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	if n, err := out.Read(make([]byte, 64)); err != nil {
		t.Fatalf("the echo did not start: %d, %v", n, err)
	}
	return l, func() string {
		t.Helper()
		c := a.Command(os.Args[0])
		c.Env = append(os.Environ(), "LAB_ASK="+b.Addr+":7")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(bytes.TrimSpace(out))
	}
}

func TestASoundWirePassesAllAsItIs(t *testing.T) {
	l, asks := hosts(t)
	if got := asks(); got != "changed false" || l.Passed.Load() == 0 {
		t.Errorf("%s, %d packets", got, l.Passed.Load())
	}
}

func TestLossAndDelayAreMendedByTCP(t *testing.T) {
	l, asks := hosts(t)
	l.Loss(0.02)
	l.Delay(2 * time.Millisecond)
	if got := asks(); got != "changed false" || l.Dropped.Load() == 0 || l.Delayed.Load() == 0 {
		t.Errorf("%s, %d dropped, %d delayed", got, l.Dropped.Load(), l.Delayed.Load())
	}
}

func TestASlowWireCarriesAll(t *testing.T) {
	l, asks := hosts(t)
	l.Rate(4 << 20)
	if got := asks(); got != "changed false" || l.Delayed.Load() == 0 || l.Bytes.Load() < 2<<20 {
		t.Errorf("%s, %d delayed, %d bytes", got, l.Delayed.Load(), l.Bytes.Load())
	}
}

func TestAFlippedBitPassesTCP(t *testing.T) {
	l, asks := hosts(t)
	l.Flip(3)
	if got := asks(); got != "changed true" || l.Flipped.Load() != 3 {
		t.Errorf("%s, %d flipped", got, l.Flipped.Load())
	}
}

func TestACutWireComesBack(t *testing.T) {
	l, asks := hosts(t)
	l.Cut(true)
	time.AfterFunc(300*time.Millisecond, func() { l.Cut(false) })
	if got := asks(); got != "changed false" || l.Dropped.Load() == 0 {
		t.Errorf("%s, %d dropped", got, l.Dropped.Load())
	}
}
