package oap

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
)

// ProtocolVersion is the version of the payloads of the Mailbox protocol.
const ProtocolVersion = 1

// Hello describes a server to any client: the JSON answer to a
// frame of ProtocolHello.
type Hello struct {
	Server      string `json:"server"`
	MaxFrame    int    `json:"max_frame"`
	MaxInFlight int    `json:"max_inflight"`
	// Versions of the framing, and Protocols by number with their versions.
	Versions  []int           `json:"versions"`
	Protocols []HelloProtocol `json:"protocols"`
}

// HelloProtocol is a protocol that a server speaks.
type HelloProtocol struct {
	ID       int    `json:"id"`
	Name     string `json:"name"`
	Versions []int  `json:"versions"`
}

// AppendHello writes the answer to HELLO.
func AppendHello(dst []byte, hello *Hello) []byte {
	text, err := json.Marshal(hello)
	if err != nil { // a struct of numbers and texts has none
		return dst
	}
	return append(dst, text...)
}

// ParseHello parses the answer to HELLO. Unlike all other parsers it accepts unknown
// fields, because HELLO is how the two sides find out what they support.
func ParseHello(payload []byte) (hello Hello, err error) {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	if err := decoder.Decode(&hello); err != nil {
		return hello, PayloadError("HELLO is not the JSON it should be")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return hello, PayloadError("there are bytes after the JSON of HELLO")
	}
	return hello, nil
}

// StartRequest begins the use of a connection.
type StartRequest struct {
	// Version is the ProtocolVersion that the client speaks.
	Version uint16
	// Producer names the producer session, and is a secret of the client: 128
	// random bits. A client that comes back names the same.
	Producer [16]byte
}

// StartAnswer is what the client has to know about the server.
type StartAnswer struct {
	Version uint16
	// Server is a number of this process. Sessions live as long as it.
	Server [16]byte
	// Resumed says that the server knows the producer session: requests that
	// the client repeats with their sequence numbers are done once.
	Resumed bool
	// Window is how far apart the sequence numbers of unanswered requests may
	// be, and MaxInFlight how many unanswered requests there may be.
	Window      int
	MaxInFlight int
	MaxFrame    int
}

// AppendStart writes the payload of OpStart.
func AppendStart(dst []byte, s *StartRequest) []byte {
	dst = binary.BigEndian.AppendUint16(dst, s.Version)
	return append(dst, s.Producer[:]...)
}

// ParseStart reads the payload of OpStart.
func ParseStart(payload []byte) (s StartRequest, err error) {
	r := reader{rest: payload}
	s.Version = r.uint16()
	copy(s.Producer[:], r.fixed(len(s.Producer)))
	return s, r.end()
}

func (r *reader) uint16() uint16 {
	if b := r.fixed(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

// AppendStarted writes the answer to OpStart.
func AppendStarted(dst []byte, s *StartAnswer) []byte {
	dst = binary.BigEndian.AppendUint16(dst, s.Version)
	dst = append(dst, s.Server[:]...)
	dst = appendFlag(dst, s.Resumed)
	dst = appendNumber(dst, uint64(s.Window))
	dst = appendNumber(dst, uint64(s.MaxInFlight))
	return appendNumber(dst, uint64(s.MaxFrame))
}

// ParseStarted reads the answer to OpStart.
func ParseStarted(payload []byte) (s StartAnswer, err error) {
	r := reader{rest: payload}
	s.Version = r.uint16()
	copy(s.Server[:], r.fixed(len(s.Server)))
	s.Resumed = r.flag()
	s.Window = r.limit()
	s.MaxInFlight = r.limit()
	s.MaxFrame = r.limit()
	return s, r.end()
}

// limit reads a number that says how many of something there may be.
func (r *reader) limit() int {
	n := r.number()
	if n > 1<<31-1 {
		r.fail("a limit is too large")
		return 0
	}
	return int(n)
}
