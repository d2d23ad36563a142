package rpcapi

import (
	"compress/gzip"
	"errors"
	"io"

	"connectrpc.com/connect"
)

// boundedCompression is gzip for requests, within bounds. Connect decompresses what is
// too large to its end, only to say how large it is: a request of 1 MiB became 1 GiB.
func boundedCompression(limit int) connect.HandlerOption {
	return connect.WithCompression("gzip",
		func() connect.Decompressor { return &boundedGzip{limit: limit} },
		func() connect.Compressor { return gzip.NewWriter(io.Discard) })
}

// gzipSlack is how many bytes of input may be ahead of the output. Honest input is longer
// than its output by little more than a header, and 32 KiB of output wait in the
// decompressor; input that is further ahead, like empty blocks, is there to cost time.
const gzipSlack = 64 << 10

var (
	errInflated = errors.New("the message is too large when it is decompressed")
	errHollow   = errors.New("the compressed message is longer than its content")
)

// A boundedGzip decompresses one message: it ends with an error when the output exceeds
// the limit, or the input is too far ahead of the output.
type boundedGzip struct {
	limit    int
	gzip     gzip.Reader
	source   io.Reader
	in, out  int
	complete bool // gzip has a source
}

// Reset begins another message.
func (b *boundedGzip) Reset(source io.Reader) error {
	b.source, b.in, b.out = source, 0, 0
	err := b.gzip.Reset((*gzipInput)(b))
	if b.complete = err == nil; b.complete {
		b.gzip.Multistream(false)
	}
	return err
}

// Read reads the content of the message.
func (b *boundedGzip) Read(p []byte) (int, error) {
	if b.out > b.limit {
		return 0, errInflated
	}
	n, err := b.gzip.Read(p[:min(len(p), b.limit+1-b.out)])
	b.out += n
	return n, err
}

// Close ends the message.
func (b *boundedGzip) Close() error {
	if !b.complete {
		return nil
	}
	return b.gzip.Close()
}

// gzipInput is the input of a boundedGzip.
type gzipInput boundedGzip

// Read reads compressed bytes, as long as they are not too far ahead of the output.
func (i *gzipInput) Read(p []byte) (int, error) {
	if i.in > i.out+gzipSlack {
		return 0, errHollow
	}
	n, err := i.source.Read(p)
	i.in += n
	return n, err
}
