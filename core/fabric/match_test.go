// SPDX-License-Identifier: MIT

package fabric

import (
	"errors"
	"strings"
	"testing"
)

func testOffer() *Info {
	return &Info{
		Provider:   "tcp",
		FabricName: "loopback",
		DomainName: "lo",
		Caps:       CapMSG | CapRMA | CapHMEM | CapLocalComm,
		Mode:       ModeKeyIsProof,
		MRMode:     MRLocal | MRVirtAddr | MRProvKey | MRHMEM,
		Order:      OrderSAS | OrderWAW,
		EPType:     EPMsg,
		Limits: Limits{MaxMsg: 1 << 30, MaxInject: 64, MaxPrivate: 256, CQDataSize: 8, TxSize: 128, RxSize: 128,
			SegLimit: 16, RSegLimit: 16, MRKeySize: 33, MaxAtomic: 64, BestOp: 1 << 20, OrderWAW: 4096},
	}
}

const allModes = MRLocal | MRVirtAddr | MRProvKey | MRHMEM

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		hints *Info
		why   string // "" matches
	}{
		{"no hints", nil, ""},
		{"empty hints follow no rule", &Info{}, "needs mode 0x2"},
		{"no registration mode", &Info{Mode: ModeKeyIsProof}, "registration mode"},
		{"no duty is taken", &Info{MRMode: allModes}, "needs mode 0x2"},
		{"another duty is taken", &Info{MRMode: allModes, Mode: ModeDenialFatal}, "needs mode 0x2"},
		{"order that is kept", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Order: OrderSAS}, ""},
		{"order that is not kept", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Order: OrderSAS | OrderRAW}, "order 0x2"},
		{"order for as many bytes", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{OrderWAW: 4096}}, ""},
		{"order for more bytes", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{OrderWAW: 4097}}, "write after write"},
		{"order of reads", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{OrderRAW: 1}}, "read after write"},
		{"order of writes after reads", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{OrderWAR: 1}}, "write after read"},
		{"larger atomics", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{MaxAtomic: 65}}, "atomics"},
		{"receives from one peer", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Caps: CapDirectedRecv}, "has no DIRECTED_RECV"},
		{"shared contexts", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Caps: CapSharedCtx | CapScalable}, "has no SHARED_CTX|SCALABLE"},
		{"rules only", &Info{Mode: ModeKeyIsProof, MRMode: allModes}, ""},
		{"more rules than needed", &Info{Mode: ModeKeyIsProof, MRMode: allModes | 1<<20}, ""},
		{"a rule short", &Info{Mode: ModeKeyIsProof, MRMode: allModes &^ MRProvKey}, "registration mode 0x4"},
		{"names agree", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Provider: "TCP", FabricName: "loopback", DomainName: "lo", EPType: EPMsg}, ""},
		{"another provider", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Provider: "shm"}, "is not shm"},
		{"another fabric", &Info{Mode: ModeKeyIsProof, MRMode: allModes, FabricName: "ib"}, `on "loopback"`},
		{"another device", &Info{Mode: ModeKeyIsProof, MRMode: allModes, DomainName: "eth0"}, `device "lo"`},
		{"another endpoint type", &Info{Mode: ModeKeyIsProof, MRMode: allModes, EPType: EPRDM}, "type 1"},
		{"a capability that is not there", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Caps: CapMSG | CapAtomic | CapTagged}, "has no ATOMIC|TAGGED"},
		{"a secondary one that is not there", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Caps: CapRemoteComm}, "has no REMOTE_COMM"},
		{"a bit without a name", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Caps: 1 << 33}, "has no 0x200000000"},
		{"limits that suffice", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: testOffer().Limits}, ""},
		{"larger messages", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{MaxMsg: 1<<30 + 1}}, "bounds messages"},
		{"larger injects", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{MaxInject: 65}}, "injected"},
		{"more private data", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{MaxPrivate: 257}}, "private data"},
		{"more completion data", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{CQDataSize: 9}}, "completion data"},
		{"more ops", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{TxSize: 129}}, "ops in flight"},
		{"more receives", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{RxSize: 129}}, "posted receives"},
		{"more local segments", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{SegLimit: 17}}, "local segments"},
		{"more remote segments", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{RSegLimit: 17}}, "remote segments"},
		{"longer keys", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{MRKeySize: 34}}, "region keys"},
		{"best op is advice", &Info{Mode: ModeKeyIsProof, MRMode: allModes, Limits: Limits{BestOp: 1 << 40}}, ""},
		{"no RMA needs no target rules", &Info{Mode: ModeKeyIsProof, MRMode: MRLocal, Caps: CapMSG}, ""},
		{"no device memory needs no rule for it", &Info{Mode: ModeKeyIsProof, MRMode: allModes &^ MRHMEM, Caps: CapMSG | CapRMA}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			offer := testOffer()
			out, err := Match(c.hints, offer)
			if c.why == "" {
				if err != nil || out == offer {
					t.Fatalf("got %v, %v", out, err)
				}
				return
			}
			if !errors.Is(err, ErrNoData) || !strings.Contains(err.Error(), c.why) {
				t.Fatalf("got %v, want ErrNoData with %q", err, c.why)
			}
		})
	}
}

func TestMatchGrants(t *testing.T) {
	all := testOffer().Caps
	for _, c := range []struct {
		name  string
		asked Caps
		caps  Caps
		mode  MRMode
	}{
		{"nothing asked is all granted", 0, all, allModes},
		{"primary only if asked, secondary unasked", CapMSG, CapMSG | CapLocalComm, MRLocal},
		{"secondary alone asks for no primary", CapLocalComm, all, allModes},
		{"RMA keeps target rules", CapRMA, CapRMA | CapLocalComm, MRLocal | MRVirtAddr | MRProvKey},
		{"device memory without a target", CapMSG | CapHMEM, CapMSG | CapHMEM | CapLocalComm, MRLocal | MRHMEM},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := Match(&Info{Caps: c.asked, Mode: ModeKeyIsProof, MRMode: allModes}, testOffer())
			if err != nil {
				t.Fatal(err)
			}
			if out.Caps != c.caps || out.MRMode != c.mode {
				t.Errorf("granted %v, mode %#x; want %v, mode %#x", out.Caps, out.MRMode, c.caps, c.mode)
			}
		})
	}
}

func TestMatchAddresses(t *testing.T) {
	out, err := Match(&Info{Mode: ModeKeyIsProof, MRMode: allModes, Src: "a:1", Dest: "b:2"}, testOffer())
	if err != nil || out.Src != "a:1" || out.Dest != "b:2" {
		t.Fatalf("addresses asked for: %+v, %v", out, err)
	}
	offer := testOffer()
	offer.Src = "a:1"
	if _, err := Match(&Info{Mode: ModeKeyIsProof, MRMode: allModes, Src: "a:2"}, offer); !errors.Is(err, ErrNoData) {
		t.Fatalf("another source: %v", err)
	}
}
