// SPDX-License-Identifier: MIT

package reliability

import (
	"testing"

	mio "mori/io"
	"mori/tests/go/lab"
)

// TestASlowWireCarriesPackedPayload moves bytes that get smaller over 100 Mbit/s, both ways, where
// checksums are compared, too.
func TestASlowWireCarriesPackedPayload(t *testing.T) {
	t.Parallel()
	l := lab.New(t)
	env := []string{"MORI_IO_COMPRESS=on", "MORI_IO_CHECKSUM=1"}
	a := startPeer(t, l.Host(), startArgs{Key: "a", env: env})
	b := startPeer(t, l.Host(), startArgs{Key: "b", env: env})
	p := connectOver(t, a, b, 2048, seed|thin)
	l.Rate(12_500_000)
	for range 8 {
		w := p.write(1024)
		p.succeed(w)
		p.hasArrived(w)
		if o := p.read(1024); o.Code != int(mio.CodeSuccess) {
			t.Fatalf("a read failed: %d %s", o.Code, o.Text)
		}
	}
	p.verify()
	var here, there mio.EngineInfo
	a.ask("describe", nil, &here)
	b.ask("describe", nil, &there)
	if here.Counters.Packed == 0 || there.Counters.Packed == 0 {
		t.Errorf("of writes %d payloads were packed, of answers to reads %d", here.Counters.Packed, there.Counters.Packed)
	}
	if l.Bytes.Load() >= p.bytes*3/4 {
		t.Errorf("%d bytes were on the wire for %d", l.Bytes.Load(), p.bytes)
	}
	t.Logf("%d and %d payloads packed, %d bytes on the wire for %d", here.Counters.Packed, there.Counters.Packed, l.Bytes.Load(), p.bytes)
}
