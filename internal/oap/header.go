package oap

import (
	"encoding/binary"
	"fmt"
)

// Sizes of frames.
const (
	// HeaderBytes is the length of a header.
	HeaderBytes = 38
	// MaxCapabilityBytes bounds the capability of a START frame.
	MaxCapabilityBytes = 4 << 10
	// MaxFrameBytes bounds a whole frame, header and capability included. Servers
	// announce it, and what does not fit comes in several frames.
	MaxFrameBytes = 1 << 20
	// EarlierFrameBytes bounds the frames of clients and servers from before
	// MaxFrameBytes: a capability, and a payload with a body of 1 MiB and what can be
	// said about it (64 KiB of attributes, names, the text of an error, a receipt).
	// The first release accepts frames of this length, the release after it does not.
	EarlierFrameBytes   = HeaderBytes + MaxCapabilityBytes + EarlierPayloadBytes
	EarlierPayloadBytes = 1<<20 + 128<<10
	// MaxTargetBytes is the most that a Target takes.
	MaxTargetBytes = 2*binary.MaxVarintLen64 + binary.MaxVarintLen32
	// ChunkBytes is about how long the frames of a stream are: long enough to
	// be cheap, short enough to let others through. It has nothing to do with
	// the largest frame.
	ChunkBytes = 64 << 10
)

// Version is the only version of the framing.
const Version = 1

// The protocols that a frame can belong to.
const (
	// ProtocolHello is answered by every OAP/1 server, with its limits.
	ProtocolHello = 0
	// ProtocolMailbox is the one that the rest of this package is about.
	ProtocolMailbox = 0x0201
)

// Flags say what kind of frame it is.
type Flags uint16

// The flags. A frame is exactly one of a request, a response and an event.
const (
	Request  Flags = 1 << iota // asks for something, and is answered
	Response                   // answers the request with the same correlation id
	Event                      // is not answered
	Start                      // carries the capability, once for each connection
	End                        // is the last of its side
	AckRequested
	Compressed
	EndToEnd

	known = Request | Response | Event | Start | End | AckRequested | Compressed | EndToEnd
)

// Header is what stands before the capability and the payload of a frame.
type Header struct {
	// Length is that of the whole frame, this header included.
	Length uint32
	Flags  Flags
	// Code is the operation, in requests and events, or the status, in
	// responses.
	Code     uint16
	Protocol uint16
	// Tenant is 128 bits that are for the two sides to agree on.
	Tenant [16]byte
	// CapabilityLength is how many bytes of capability follow the header.
	CapabilityLength uint16
	// Correlation is chosen by the requester, and repeated in what belongs to
	// the request.
	Correlation uint64
}

// A FrameError says why a stream of bytes is not one of frames. The stream
// cannot be read on after it.
type FrameError string

// Error returns the reason.
func (e FrameError) Error() string { return "oap: " + string(e) }

// AppendHeader writes a header. Its length must be set, see SetLength.
func AppendHeader(dst []byte, h *Header) []byte {
	dst = binary.BigEndian.AppendUint32(dst, h.Length)
	dst = binary.BigEndian.AppendUint16(dst, Version)
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Flags))
	dst = binary.BigEndian.AppendUint16(dst, h.Code)
	dst = binary.BigEndian.AppendUint16(dst, h.Protocol)
	dst = append(dst, h.Tenant[:]...)
	dst = binary.BigEndian.AppendUint16(dst, h.CapabilityLength)
	return binary.BigEndian.AppendUint64(dst, h.Correlation)
}

// SetLength writes the length of a frame that begins at start and ends with
// dst, once its payload is there.
func SetLength(dst []byte, start int) {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
}

// ParseHeader reads a header, of which all HeaderBytes bytes must be there, and
// refuses one that no frame can have.
func ParseHeader(b []byte) (h Header, err error) {
	_ = b[HeaderBytes-1]
	h.Length = binary.BigEndian.Uint32(b)
	version := binary.BigEndian.Uint16(b[4:])
	h.Flags = Flags(binary.BigEndian.Uint16(b[6:]))
	h.Code = binary.BigEndian.Uint16(b[8:])
	h.Protocol = binary.BigEndian.Uint16(b[10:])
	copy(h.Tenant[:], b[12:])
	h.CapabilityLength = binary.BigEndian.Uint16(b[28:])
	h.Correlation = binary.BigEndian.Uint64(b[30:])
	switch {
	case version != Version:
		return h, FrameError(fmt.Sprintf("version %d is not %d", version, Version))
	case h.Length < HeaderBytes+uint32(h.CapabilityLength):
		return h, FrameError(fmt.Sprintf("a length of %d is too short for a header and %d bytes of capability", h.Length, h.CapabilityLength))
	case h.Length > EarlierFrameBytes:
		return h, FrameError(fmt.Sprintf("a length of %d is over the %d that are allowed", h.Length, MaxFrameBytes))
	case h.Flags&^known != 0:
		return h, FrameError(fmt.Sprintf("flags %#x are unknown", uint16(h.Flags&^known)))
	case h.CapabilityLength > MaxCapabilityBytes:
		return h, FrameError(fmt.Sprintf("a capability of %d bytes is over the %d that are allowed", h.CapabilityLength, MaxCapabilityBytes))
	case h.CapabilityLength > 0 && h.Flags&Start == 0:
		return h, FrameError("a capability comes with START only")
	}
	switch h.Flags & (Request | Response | Event) {
	case Request, Response, Event:
		return h, nil
	}
	return h, FrameError("a frame is one of REQ, RESP and EVENT")
}

// A Frame is a header and what follows it.
type Frame struct {
	Header
	Capability []byte
	Payload    []byte
}

// Next cuts the first frame off b. If it is not all there, need says how long b
// has to be before it is worth trying again, which is never more than
// EarlierFrameBytes; need is 0 if there is a frame. What the frame points to is part
// of b.
func Next(b []byte) (f Frame, rest []byte, need int, err error) {
	if len(b) < HeaderBytes {
		return f, b, HeaderBytes, nil
	}
	if f.Header, err = ParseHeader(b); err != nil {
		return f, b, 0, err
	}
	length := int(f.Length)
	if len(b) < length {
		return f, b, length, nil
	}
	body := HeaderBytes + int(f.CapabilityLength)
	f.Capability = b[HeaderBytes:body:body]
	f.Payload = b[body:length:length]
	return f, b[length:], 0, nil
}

// AppendFrame writes a frame with a payload that is there already.
func AppendFrame(dst []byte, h *Header, capability, payload []byte) []byte {
	h.CapabilityLength = uint16(len(capability))
	h.Length = uint32(HeaderBytes + len(capability) + len(payload))
	dst = AppendHeader(dst, h)
	dst = append(dst, capability...)
	return append(dst, payload...)
}
