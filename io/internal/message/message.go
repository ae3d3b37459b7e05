// SPDX-License-Identifier: MIT

//lint:file-ignore U1000 msgpack finds the _msgpack fields by reflection

package message

// Version is the protocol version. Both sides of a connection must have the same one.
const Version = 4

// A Type is the kind of a message's body.
type Type byte

// The types.
const (
	TypeHello     Type = 1
	TypeWelcome   Type = 2
	TypeAskRegion Type = 3
	TypeRegion    Type = 4
	TypeFailure   Type = 5
	TypeDrop      Type = 6
	TypeDropped   Type = 7
	TypeChallenge Type = 8
	TypeProof     Type = 9
	TypeTags      Type = 10
	TypeTagged    Type = 11
	TypeBeat      Type = 12 // an empty body, answered by the same
)

// Hello identifies the client, and names the engine that it expects to answer.
type Hello struct {
	_msgpack        struct{} `msgpack:",as_array"`
	Version         int
	Key             string `max:"256"` // descriptor.MaxKey
	NodeID          string `max:"256"`
	Incarnation     uint64
	PeerKey         string `max:"256"`
	PeerIncarnation uint64 // 0 = not known
	Nonce           []byte
	Auth            bool   // the sender has a secret and wants proof
	PublicKey       []byte // of the sender
}

// Challenge is the answer to a Hello.
type Challenge struct {
	_msgpack    struct{} `msgpack:",as_array"`
	Nonce       []byte
	Incarnation uint64
	PublicKey   []byte // of the sender
	Proof       []byte // empty without a secret
}

// Proof is the client's answer to a Challenge.
type Proof struct {
	_msgpack  struct{} `msgpack:",as_array"`
	Proof     []byte   // empty without a secret
	Signature []byte
}

// Welcome identifies the server and lists where its transports listen. Data connections send its
// token as private data, which ties them to this handshake.
type Welcome struct {
	_msgpack    struct{} `msgpack:",as_array"`
	Version     int
	Key         string
	NodeID      string
	Incarnation uint64
	Notify      bool // the sender wants notifications of arrivals
	Token       []byte
	Endpoints   []Endpoint `max:"64"`
	Proof       []byte     // empty without a secret
	Signature   []byte
}

// An Endpoint is one of the peer's transports, which it lists in order of preference.
type Endpoint struct {
	_msgpack struct{} `msgpack:",as_array"`
	Name     string
	Addr     string
}

// AskRegion asks whether a region is registered with that key, and for its size.
type AskRegion struct {
	_msgpack struct{} `msgpack:",as_array"`
	ID       uint32
	Secret   []byte
}

// Region is the answer to AskRegion.
type Region struct {
	_msgpack struct{} `msgpack:",as_array"`
	Known    bool
	Size     uint64
}

// Drop asks the peer to close the data connection that was opened with a token. The peer answers
// when that connection can write no more bytes.
type Drop struct {
	_msgpack struct{} `msgpack:",as_array"`
	Token    []byte
}

// Dropped is the answer to Drop.
type Dropped struct {
	_msgpack struct{} `msgpack:",as_array"`
	Found    bool     // it was still open
}

// Tags has the tags of transfers; see PackTags.
type Tags struct {
	_msgpack struct{} `msgpack:",as_array"`
	Packed   []byte
}

// Tagged is the answer to Tags.
type Tagged struct {
	_msgpack struct{} `msgpack:",as_array"`
	Taken    int
}

// A Beat asks for another Beat.
type Beat struct {
	_msgpack struct{} `msgpack:",as_array"`
}

// Failure is a refusal, with the reason as text.
type Failure struct {
	_msgpack struct{} `msgpack:",as_array"`
	Text     string
}
