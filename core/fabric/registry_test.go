// SPDX-License-Identifier: MIT

package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// A fakeProvider answers GetInfo with offers and opens fakeFabrics.
type fakeProvider struct {
	name    string
	version Version
	api     Version
	offers  []*Info
	err     error
	enter   chan struct{} // if set, GetInfo sends here and then receives
}

func (p *fakeProvider) Name() string                { return p.name }
func (p *fakeProvider) Version() (Version, Version) { return p.version, p.api }
func (p *fakeProvider) Open(context.Context, *Info) (Fabric, error) {
	if p.err != nil {
		return nil, p.err
	}
	return &fakeFabric{}, nil
}

func (p *fakeProvider) GetInfo(_ context.Context, _, _ string, hints *Info) ([]*Info, error) {
	if p.enter != nil {
		p.enter <- struct{}{}
		<-p.enter
	}
	var out []*Info
	for _, o := range p.offers {
		out = append(out, o.Clone())
	}
	return out, p.err
}

type fakeFabric struct {
	Fabric
	closed error
}

func (f *fakeFabric) Close() error { return f.closed }

func fake(name string) *fakeProvider {
	return &fakeProvider{name: name, version: Version{1, 0}, api: APIVersion, offers: []*Info{{Caps: CapMSG | CapRMA}}}
}

func TestRegister(t *testing.T) {
	for _, c := range []struct {
		name string
		p    Provider
		want error
	}{
		{"a second name is welcome", fake("b"), nil},
		{"no provider", nil, ErrInvalid},
		{"no name", fake(""), ErrInvalid},
		{"same name and version", fake("a"), ErrExist},
		{"case does not make another name", fake("A"), ErrExist},
		{"older version", &fakeProvider{name: "a", version: Version{0, 9}, api: APIVersion}, ErrExist},
		{"newer version replaces", &fakeProvider{name: "a", version: Version{1, 1}, api: APIVersion}, nil},
		{"another major API", &fakeProvider{name: "c", api: Version{APIVersion.Major + 1, 0}}, ErrNoSys},
		{"newer minor API", &fakeProvider{name: "c", api: Version{APIVersion.Major, APIVersion.Minor + 1}}, ErrNoSys},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewRegistry()
			if err := r.Register(fake("a")); err != nil {
				t.Fatal(err)
			}
			if err := r.Register(c.p); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

func names(infos []*Info) string {
	var s []string
	for _, in := range infos {
		s = append(s, in.Provider)
	}
	return strings.Join(s, " ")
}

func TestGetInfoOrderAndFilter(t *testing.T) {
	for _, c := range []struct{ name, filter, hint, want string }{
		{"all in order of registration", "", "", "shm tcp mem"},
		{"a list", "tcp,shm", "", "shm tcp"},
		{"a list with spaces and capitals", " TCP , Mem ", "", "tcp mem"},
		{"a negated list", "^tcp,mem", "", "shm"},
		{"negated nothing is no filter", "^", "", "shm tcp mem"},
		{"a name in the hints", "", "TCP", "tcp"},
		{"hints and filter", "^tcp", "tcp", ""},
		{"nobody", "verbs", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewRegistry()
			for _, n := range []string{"shm", "tcp", "mem"} {
				if err := r.Register(fake(n)); err != nil {
					t.Fatal(err)
				}
			}
			r.SetFilter(c.filter)
			infos, err := r.GetInfo(testContext(t), "", "", &Info{Provider: c.hint})
			if names(infos) != c.want {
				t.Errorf("got %q, want %q", names(infos), c.want)
			}
			if (c.want == "") != errors.Is(err, ErrNoData) {
				t.Errorf("got %v", err)
			}
			if got := strings.Join(r.Names(), " "); c.hint == "" && got != c.want {
				t.Errorf("the names are %q, want %q", got, c.want)
			}
		})
	}
}

func TestGetInfoFailingProvider(t *testing.T) {
	r := NewRegistry()
	broken := fake("broken")
	broken.offers, broken.err = nil, fmt.Errorf("look at devices: %w", ErrPerm)
	if err := r.Register(broken); err != nil {
		t.Fatal(err)
	}
	if _, err := r.GetInfo(testContext(t), "", "", nil); !errors.Is(err, ErrNoData) || !errors.Is(err, ErrPerm) {
		t.Fatalf("got %v, want both ErrNoData and the reason", err)
	}
	if err := r.Register(fake("good")); err != nil {
		t.Fatal(err)
	}
	infos, err := r.GetInfo(testContext(t), "", "", nil)
	if err != nil || names(infos) != "good" {
		t.Fatalf("got %q, %v", names(infos), err)
	}
	if infos[0].ProviderVersion != (Version{1, 0}) {
		t.Errorf("version %v was not filled in", infos[0].ProviderVersion)
	}
	for _, caps := range []Caps{CapTagged, CapAtomic, CapTrigger, CapMultiRecv, 1 << 40} {
		if _, err := r.GetInfo(testContext(t), "", "", &Info{Caps: CapMSG | caps}); !errors.Is(err, ErrNoData) {
			t.Errorf("caps %v, offered by nobody: %v", caps, err)
		}
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.GetInfo(canceled, "", "", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v with a canceled context", err)
	}
}

func TestDeregisterWaitsForFabrics(t *testing.T) {
	ctx := testContext(t)
	r := NewRegistry()
	if err := r.Register(fake("a")); err != nil {
		t.Fatal(err)
	}
	if err := r.Deregister(ctx, "b"); !errors.Is(err, ErrNoData) {
		t.Fatalf("unknown name: %v", err)
	}
	f, err := r.Open(ctx, &Info{Provider: "A"})
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := r.Deregister(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("in use: %v", err)
	}
	if _, err := r.Open(ctx, &Info{Provider: "a"}); !errors.Is(err, ErrNoData) {
		t.Fatalf("open after deregister: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Deregister(ctx, "a") }()
	inner := f.(*heldFabric).Fabric.(*fakeFabric)
	inner.closed = ErrBusy
	if err := f.Close(); !errors.Is(err, ErrBusy) {
		t.Fatalf("close of a busy fabric: %v", err)
	}
	select {
	case err := <-done:
		t.Fatalf("deregistered under an open fabric: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	inner.closed = nil
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := r.Deregister(ctx, "a"); !errors.Is(err, ErrNoData) {
		t.Fatalf("gone: %v", err)
	}
}

func TestDeregisterWaitsForCalls(t *testing.T) {
	ctx := testContext(t)
	r := NewRegistry()
	p := fake("a")
	p.enter = make(chan struct{})
	if err := r.Register(p); err != nil {
		t.Fatal(err)
	}
	got := make(chan []*Info, 1)
	go func() {
		infos, _ := r.GetInfo(ctx, "", "", nil)
		got <- infos
	}()
	<-p.enter
	done := make(chan error, 1)
	go func() { done <- r.Deregister(ctx, "a") }()
	for !isLeaving(r, "a") {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-done:
		t.Fatal("deregistered during a call")
	default:
	}
	p.enter <- struct{}{}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if infos := <-got; len(infos) != 1 {
		t.Fatalf("the call under way got %d answers", len(infos))
	}
}

func isLeaving(r *Registry, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.leaving, func(reg *registration) bool { return reg.name == name })
}

func TestOpenErrors(t *testing.T) {
	ctx := testContext(t)
	r := NewRegistry()
	p := fake("a")
	p.err = ErrPerm
	if err := r.Register(p); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open(ctx, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("no info: %v", err)
	}
	if _, err := r.Open(ctx, &Info{Provider: "a"}); !errors.Is(err, ErrPerm) {
		t.Errorf("provider that fails: %v", err)
	}
	if err := r.Deregister(ctx, "a"); err != nil {
		t.Errorf("a failed open left a reference: %v", err)
	}
}
