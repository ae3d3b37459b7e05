// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"net"
	"testing"
	"time"
)

// A region's size is its id at this control plane, which answers questions for region 1 only after late was closed.
func slowControl(t *testing.T, late <-chan struct{}) int {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	b, err := newSigner()
	if err != nil {
		t.Fatal(err)
	}
	serve := func(c net.Conn) {
		defer func() { _ = c.Close() }()
		var h hello
		ch := challenge{Nonce: make([]byte, nonceLen), Incarnation: 5, PublicKey: b.public[:]}
		for {
			kind, body, err := readControl(c)
			if err != nil {
				return
			}
			switch kind {
			case controlHello:
				_ = decodeControl(body, &h)
				_ = writeControl(c, controlChallenge, &ch)
				continue
			case controlProof:
				w := welcome{Version: controlVersion, Key: "b", Incarnation: 5, Token: make([]byte, tokenLen)}
				w.Signature = b.sign(roleWelcome, closing(&h, &ch, &w)...)
				_ = writeControl(c, controlWelcome, &w)
				continue
			}
			var q askRegion
			_ = decodeControl(body, &q)
			if q.ID == 1 {
				<-late
			}
			_ = writeControl(c, controlRegion, &regionReply{Known: true, Size: uint64(q.ID)})
		}
	}
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return lis.Addr().(*net.TCPAddr).Port
}

func TestALateAnswerIsNotTakenForThatToTheNextQuestion(t *testing.T) {
	late := make(chan struct{})
	a := newSide(t, "a", 8, BackendTCP, nil)
	if err := a.RegisterRemoteEngine(EngineDesc{Key: "b", Host: "127.0.0.1", Port: slowControl(t, late)}); err != nil {
		t.Fatal(err)
	}
	ctl := &a.store.peerOf("b").ctl
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := ctl.region(short, MemoryDesc{ID: 1}); err == nil {
		t.Fatal("an answer that never came")
	}
	close(late)
	for range 20 {
		if _, size, err := ctl.region(deadline(t), MemoryDesc{ID: 2}); err != nil || size != 2 {
			t.Fatalf("answered %d, %v", size, err)
		}
	}
}
