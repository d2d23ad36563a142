package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sqsRegion is the region of every request; no server cares.
const sqsRegion = "us-east-1"

// An sqsSigner makes requests as the SDK of AWS for Go does, with its headers, and signs
// them with Signature Version 4. It derives its key once, and is for one goroutine.
type sqsSigner struct {
	host, accessKey, secret, session string

	date    string // of the signatures
	scope   string
	key     hash.Hash
	payload hash.Hash
	text    []byte // the canonical request, then the string to sign
	sum     [sha256.Size]byte
}

// at makes the signer sign with this date. Servers refuse signatures that are a quarter of
// an hour old.
func (s *sqsSigner) at(now time.Time) {
	now = now.UTC()
	s.date = now.Format("20060102T150405Z")
	day := now.Format("20060102")
	s.scope = day + "/" + sqsRegion + "/sqs/aws4_request"
	key := []byte("AWS4" + s.secret)
	for _, part := range []string{day, sqsRegion, "sqs", "aws4_request"} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	s.key, s.payload = hmac.New(sha256.New, key), sha256.New()
}

// Headers that are the same in all requests.
const (
	sqsInvocation = "9db8d017-ae74-4831-94d8-96155a049057"
	sqsAttempt    = "attempt=1; max=3"
	sqsContent    = "application/x-amz-json-1.0"
	sqsAgent      = "aws-sdk-go-v2/1.47.5 ua/2.1 os/linux lang/go#1.26.8 md/GOOS#linux md/GOARCH#amd64 api/sqs#1.52.8 m/E,e"
)

// append appends a signed request for an action to b.
func (s *sqsSigner) append(b []byte, action string, body []byte) []byte {
	length := strconv.Itoa(len(body))
	covered := "amz-sdk-invocation-id;amz-sdk-request;content-length;content-type;host;x-amz-date;x-amz-security-token;x-amz-target;x-amzn-query-mode"
	session := "x-amz-security-token:" + s.session + "\n"
	if s.session == "" {
		covered, session = strings.Replace(covered, "x-amz-security-token;", "", 1), ""
	}
	t := append(s.text[:0], "POST\n/\n\namz-sdk-invocation-id:"+sqsInvocation+"\namz-sdk-request:"+sqsAttempt+"\ncontent-length:"...)
	t = append(append(t, length...), "\ncontent-type:"+sqsContent+"\nhost:"...)
	t = append(append(t, s.host...), "\nx-amz-date:"...)
	t = append(append(append(t, s.date...), '\n'), session...)
	t = append(append(append(t, "x-amz-target:AmazonSQS."...), action...), "\nx-amzn-query-mode:true\n\n"...)
	t = append(append(t, covered...), '\n')
	t = s.appendSum(t, s.payload, body)
	whole := len(t)
	t = append(append(append(t, "AWS4-HMAC-SHA256\n"...), s.date...), '\n')
	t = append(append(t, s.scope...), '\n')
	t = s.appendSum(t, s.payload, t[:whole])
	s.text = t

	b = append(append(b, "POST / HTTP/1.1\r\nHost: "...), s.host...)
	b = append(b, "\r\nUser-Agent: "+sqsAgent+"\r\nContent-Length: "...)
	b = append(append(b, length...), "\r\nAmz-Sdk-Invocation-Id: "+sqsInvocation+"\r\nAmz-Sdk-Request: "+sqsAttempt+"\r\nAuthorization: AWS4-HMAC-SHA256 Credential="...)
	b = append(append(append(b, s.accessKey...), '/'), s.scope...)
	b = append(append(append(b, ", SignedHeaders="...), covered...), ", Signature="...)
	b = s.appendSum(b, s.key, t[whole:])
	b = append(append(b, "\r\nContent-Type: "+sqsContent+"\r\nX-Amz-Date: "...), s.date...)
	if s.session != "" {
		b = append(append(b, "\r\nX-Amz-Security-Token: "...), s.session...)
	}
	b = append(append(b, "\r\nX-Amz-Target: AmazonSQS."...), action...)
	b = append(b, "\r\nX-Amzn-Query-Mode: true\r\nAccept-Encoding: gzip\r\n\r\n"...)
	return append(b, body...)
}

// appendSum appends the sum of text in hexadecimal digits.
func (s *sqsSigner) appendSum(b []byte, h hash.Hash, text []byte) []byte {
	h.Reset()
	h.Write(text)
	return hex.AppendEncode(b, h.Sum(s.sum[:0]))
}

// An sqsConn is a connection that stays open, with one request at a time.
type sqsConn struct {
	net.Conn
	in       []byte
	requests uint64
}

// ask sends a request and returns the body of the answer, which is valid until the next
// call. An answer other than 200 is an error.
func (c *sqsConn) ask(request []byte) ([]byte, error) {
	c.requests++
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	c.in = c.in[:0]
	end := -1
	for end < 0 {
		if err := c.atLeast(len(c.in) + 1); err != nil {
			return nil, err
		}
		end = bytes.Index(c.in, []byte("\r\n\r\n"))
	}
	head := c.in[:end]
	body, err := c.body(head, end+len("\r\n\r\n"))
	if err == nil && !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
		status, _, _ := bytes.Cut(head, []byte("\r\n"))
		err = fmt.Errorf("%s: %s", status, body)
	}
	return body, err
}

// atLeast reads until c.in has size bytes.
func (c *sqsConn) atLeast(size int) error {
	for len(c.in) < size {
		if len(c.in) == cap(c.in) {
			c.in = slices.Grow(c.in, max(size-len(c.in), 8<<10))
		}
		n, err := c.Read(c.in[len(c.in):cap(c.in)])
		if c.in = c.in[:len(c.in)+n]; n == 0 && err != nil {
			return err
		}
	}
	return nil
}

// body reads the body that begins at from in c.in: one with a length, or in chunks.
func (c *sqsConn) body(head []byte, from int) ([]byte, error) {
	length := headerOf(head, "content-length")
	if length == nil {
		return c.chunks(from)
	}
	size, err := strconv.Atoi(string(length))
	if err != nil {
		return nil, fmt.Errorf("content-length: %w", err)
	}
	if err := c.atLeast(from + size); err != nil {
		return nil, err
	}
	return c.in[from : from+size], nil
}

// chunks reads a body in chunks that begins at from in c.in, and joins them.
func (c *sqsConn) chunks(from int) ([]byte, error) {
	begin, end := from, from
	for {
		line := bytes.Index(c.in[from:], []byte("\r\n"))
		if line < 0 {
			if err := c.atLeast(len(c.in) + 1); err != nil {
				return nil, err
			}
			continue
		}
		size, err := strconv.ParseUint(string(c.in[from:from+line]), 16, 31)
		if err != nil {
			return nil, fmt.Errorf("an answer without a length, and not in chunks: %w", err)
		}
		chunk := from + line + len("\r\n")
		from = chunk + int(size) + len("\r\n")
		if err := c.atLeast(from); err != nil {
			return nil, err
		}
		if size == 0 {
			return c.in[begin:end], nil
		}
		end += copy(c.in[end:], c.in[chunk:chunk+int(size)])
	}
}

// headerOf returns the value of a header, nil if the answer does not have it.
func headerOf(head []byte, name string) []byte {
	for line := range bytes.Lines(head) {
		if len(line) > len(name) && line[len(name)] == ':' && strings.EqualFold(string(line[:len(name)]), name) {
			return bytes.TrimSpace(line[len(name)+1:])
		}
	}
	return nil
}

// textsOf appends the values of all members with a name to texts. They must not need
// decoding: receipts and bodies in base64 do not.
func textsOf(texts [][]byte, answer []byte, name string) ([][]byte, error) {
	member := `"` + name + `":"`
	for {
		at := bytes.Index(answer, []byte(member))
		if at < 0 {
			return texts, nil
		}
		answer = answer[at+len(member):]
		end := bytes.IndexAny(answer, `"\\`)
		if end < 0 || answer[end] != '"' {
			return nil, fmt.Errorf("%s: the client does not decode %.100q", name, answer)
		}
		texts = append(texts, answer[:end])
		answer = answer[end:]
	}
}
