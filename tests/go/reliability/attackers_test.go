// SPDX-License-Identifier: MIT

package reliability

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	mio "mori/io"
	"mori/tests/go/lab"
)

var update = flag.Bool("update", false, "write the table of attackers into docs/security.md")

// What an attacker may be able to do, as the columns of the table.
const (
	passes  = iota // its engine gets past the handshake
	listens        // reads bytes of transfers
	usesKey        // reads or writes a region whose key it was given or saw
	reaches        // reads memory whose key it does not have
	speaks         // has arrivals reported of a registered engine, or opens a connection in its name
	alters         // changes bytes of a transfer that then succeeds
	stops          // makes the engine fail others
	abilities
)

var columns = [abilities]string{"passes the handshake", "reads bytes in transit", "uses the key of a region", "reaches other memory",
	"speaks for a registered engine", "alters bytes unnoticed", "stops the engine"}

// An attacker is a row. Abilities that it has no access to are not tried.
type attacker int

const (
	stranger attacker = iota
	otherUser
	member
	reader
	alterer
	attackers
)

var rows = [attackers]string{"can connect", "is another user of this host", "is a member that lies", "reads the network", "reads and changes the network"}

// The settings of the engines that are attacked.
var settings = [...]string{"nothing set", "the secret", "TLS", "the secret and TLS"}

// A finding is what an attacker was able to do under each setting; nil is not tried.
type finding [abilities]*[len(settings)]bool

func (f *finding) note(setting, ability int, able bool) {
	if f[ability] == nil {
		f[ability] = new([len(settings)]bool)
	}
	f[ability][setting] = able
}

func cell(able *[len(settings)]bool) string {
	if able == nil {
		return "–"
	}
	switch *able {
	case [4]bool{}:
		return "no"
	case [4]bool{true, true, true, true}:
		return "yes"
	case [4]bool{true, true, false, false}:
		return "without TLS"
	case [4]bool{true, false, true, false}:
		return "without the secret"
	}
	var with []string
	for i, yes := range able {
		if yes {
			with = append(with, "with "+settings[i])
		}
	}
	return strings.Join(with, ", ")
}

// TestWhatAttackersCanDo has each attacker try what it can against engines with nothing set, with a
// secret, with TLS, and with both. The table in docs/security.md says what came of it: -update
// writes it.
func TestWhatAttackersCanDo(t *testing.T) {
	lab.Need(t)
	var found [attackers]finding
	cert, key := certificate(t)
	secret := []string{"MORI_AUTH_SECRET=open sesame"}
	tls := []string{"MORI_TLS_CERT=" + cert, "MORI_TLS_KEY=" + key, "MORI_TLS_CA=" + cert}
	for i, env := range [len(settings)][]string{nil, secret, tls, append(secret, tls...)} {
		t.Run(settings[i], func(t *testing.T) {
			s := newSiege(t, env)
			note := func(who attacker, ability int, able bool) { found[who].note(i, ability, able) }
			s.tapWire(note)
			s.intrude(stranger, s.outside, startArgs{Key: "m"}, note)
			s.intrude(otherUser, s.inside, startArgs{Key: "m", UID: 65534}, note)
			s.intrude(member, s.outside, startArgs{Key: "m", env: env}, note)
			s.pair.overwrite()
			s.pair.hold(s.pair.b, 0, s.pair.may)
		})
	}
	if t.Failed() {
		return
	}
	compareTable(t, table(&found))
}

// certificate makes a certificate that is its own authority, and returns the files of it and of
// its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, own.Public(), own)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func table(found *[attackers]finding) string {
	var b strings.Builder
	b.WriteString("| attacker | " + strings.Join(columns[:], " | ") + " |\n|" + strings.Repeat("---|", abilities+1) + "\n")
	for who, f := range found {
		b.WriteString("| " + rows[who])
		for _, able := range f {
			b.WriteString(" | " + cell(able))
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// compareTable holds the table against the page, or writes it there.
func compareTable(t *testing.T, table string) {
	t.Helper()
	page := filepath.Join("..", "..", "..", "docs", "security.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "| attacker | "+columns[0])
	end := strings.Index(rest, "\n\n")
	if !ok || end < 0 {
		t.Fatalf("%s has no table of attackers", page)
	}
	was := "| attacker | " + columns[0] + rest[:end+1]
	switch {
	case was == table:
	case *update:
		if err := os.WriteFile(page, []byte(before+table+rest[end+1:]), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/security.md says\n%s\nand attackers can do this:\n%s\nRun this test with -update if that is intended.", was, table)
	}
}

// A siege is two engines on two hosts, and a third host for attackers.
type siege struct {
	*testing.T
	lab             *lab.Lab
	pair            *pair
	inside, outside *lab.Host
	target          mio.EngineDesc
	region          mio.MemoryDesc // of the target
	other           mio.MemoryDesc // likewise; its key goes nowhere
}

func newSiege(t *testing.T, env []string) *siege {
	s := &siege{T: t, lab: lab.New(t)}
	near := s.lab.Host()
	s.inside, s.outside = s.lab.Host(), s.lab.Host()
	a := startPeer(t, near, startArgs{Key: "a", env: env})
	b := startPeer(t, s.inside, startArgs{Key: "b", MemoryMiB: 2048, env: env})
	s.pair = connect(t, a, b, 256)
	var packed []byte
	b.ask("region", regionArgs{Blocks: 1, Seed: seed}, &packed)
	var err error
	if s.other, err = mio.UnpackMemoryDesc(packed); err != nil {
		t.Fatal(err)
	}
	if s.region, err = mio.UnpackMemoryDesc(s.pair.remote); err != nil {
		t.Fatal(err)
	}
	if s.target, err = mio.UnpackEngineDesc(b.desc); err != nil {
		t.Fatal(err)
	}
	return s
}

// tapWire has an attacker between the hosts: first it only reads, then it alters packets.
func (s *siege) tapWire(note func(attacker, int, bool)) {
	tap := &wiretap{key: s.region.Secret[:]}
	w := s.pair.newWrite(64)
	tap.data = parts(s.pair.seed, w.Local)
	s.lab.Watch(tap.see)
	s.pair.post(w)
	s.pair.succeed(w)
	s.lab.Watch(nil)
	outsider := startPeer(s.T, s.outside, startArgs{Key: "r"})
	outsider.ask("region", regionArgs{Blocks: 1}, nil)
	uses := tap.sawKey && s.session(outsider, s.target, s.region) == nil && s.reads(outsider)
	note(reader, listens, tap.sawData)
	note(alterer, listens, tap.sawData)
	note(reader, usesKey, uses)
	note(alterer, usesKey, uses || s.redirected(tap))
	note(reader, speaks, s.impersonates(outsider, s.outside.Addr))
	note(alterer, alters, s.altered(tap))
	note(alterer, speaks, s.forged(tap))
}

// altered has the tap change bytes of a write, and reports whether the write succeeds with wrong
// bytes.
func (s *siege) altered(tap *wiretap) bool {
	w := s.pair.newWrite(64)
	tap.data, tap.flips = parts(s.pair.seed, w.Local), 2
	s.lab.Watch(tap.see)
	s.pair.post(w)
	o := s.pair.ended(w)
	s.lab.Watch(nil)
	if tap.flips > 0 {
		s.Error("no packet was altered")
	}
	var wrong []int
	s.pair.b.ask("verify", verifyArgs{Region: 0, Seed: s.pair.seed, May: s.pair.may}, &wrong)
	return o.Code == int(mio.CodeSuccess) && slices.ContainsFunc(w.Remote, func(i int) bool { return slices.Contains(wrong, i) })
}

// redirected has the tap use a connection of others: a write goes to another place of the region.
func (s *siege) redirected(tap *wiretap) bool {
	w := s.pair.newWrite(1)
	to := (w.Remote[0] + 1) % s.pair.blocks
	tap.offsets = map[uint64]uint64{w.UID: uint64(to) * block}
	s.lab.Watch(tap.see)
	s.pair.post(w)
	s.pair.ended(w)
	s.lab.Watch(nil)
	there := s.pair.may[to]
	s.pair.may[to] = []int{w.Local[0]}
	var wrong []int
	s.pair.b.ask("verify", verifyArgs{Region: 0, Seed: s.pair.seed, May: s.pair.may}, &wrong)
	s.pair.may[to] = there
	return !slices.Contains(wrong, to)
}

// forged has the tap replace the uid of a write, and reports whether the target then has an
// arrival that never was.
func (s *siege) forged(tap *wiretap) bool {
	w := s.pair.newWrite(1)
	lie := w.UID + 1<<32
	tap.uids = map[uint64]uint64{w.UID: lie}
	s.lab.Watch(tap.see)
	s.pair.post(w)
	s.pair.succeed(w)
	s.lab.Watch(nil)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s.arrived(lie) {
			return true
		}
		if s.arrived(w.UID) { // one or the other comes
			return s.arrived(lie)
		}
	}
	s.Fatal("neither the arrival nor the forged one came")
	return false
}

// arrived reports whether the target says that transfer uid of engine a has arrived.
func (s *siege) arrived(uid uint64) (there bool) {
	s.pair.b.ask("arrived", arrivedArgs{"a", uid}, &there)
	return there
}

// session returns the error of opening a session to a region of an engine in the name of the peer.
func (s *siege) session(from *peer, to mio.EngineDesc, region mio.MemoryDesc) error {
	from.ask("know", to.Pack(), nil)
	return from.try("session", sessionArgs{Local: 0, Remote: region.Pack()}, nil)
}

// reads reports whether a block comes through the peer's last session.
func (s *siege) reads(by *peer) bool {
	var o outcome
	by.ask("post", postArgs{Session: 0, Read: true, UID: 1, Local: []int{0}, Remote: []int{0}}, nil)
	by.ask("wait", uint64(1), &o)
	return o.Code == int(mio.CodeSuccess)
}

// impersonates has the peer's process open a session as an engine with a's key, with all of a's
// descriptor but its private key.
func (s *siege) impersonates(p *peer, host string) bool {
	p.ask("close", nil, nil)
	p.ask("start", startArgs{Key: "a", Host: host}, nil)
	p.ask("region", regionArgs{Blocks: 1}, nil)
	p.ask("know", s.target.Pack(), nil)
	return p.try("session", sessionArgs{Local: 1, Remote: s.region.Pack()}, nil) == nil
}

// intrude has an engine attack from a host.
func (s *siege) intrude(who attacker, from *lab.Host, args startArgs, note func(attacker, int, bool)) {
	p := startPeer(s.T, from, args)
	defer p.kill()
	p.ask("region", regionArgs{Blocks: 1}, nil)
	guess := s.other
	guess.Secret = s.region.Secret // a member has it
	if who != member {
		guess.Secret = [16]byte{1}
	}
	err := s.session(p, s.target, guess)
	note(who, passes, err == nil || strings.Contains(err.Error(), "is not registered with engine"))
	reached := err == nil
	if who == otherUser {
		pid := s.pair.b.cmd.Process.Pid
		reached = reached || p.try("peek", peekArgs{PID: pid, Addr: s.region.Data}, nil) == nil
	}
	note(who, reaches, reached)
	if who == member {
		note(who, usesKey, s.session(p, s.target, s.region) == nil && s.reads(p))
	}
	note(who, speaks, s.impersonates(p, from.Addr))
	addr := net.JoinHostPort(s.target.Host, strconv.Itoa(s.target.Port))
	p.ask("throw", throwArgs{Addr: addr, Bodies: hostileMessages("b")}, nil)
	w := s.pair.write(16)
	note(who, stops, s.pair.ended(w).Code != int(mio.CodeSuccess))
}
