package rpcapi

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"testing"
)

// bomb is the size of the request in the tests: the largest that is accepted.
const bomb = 1 << 20

// countingReader counts what is read of it.
type countingReader struct {
	io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func compressed(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGzipBombFailsAtTheLimit(t *testing.T) {
	var part bytes.Buffer // after a flush it can be repeated
	w, err := flate.NewWriter(&part, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	data := append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}, bytes.Repeat(part.Bytes(), bomb/part.Len())...)
	source := &countingReader{Reader: bytes.NewReader(data)}
	b := &boundedGzip{limit: MaxRequestBytes}
	if err := b.Reset(source); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, b)
	if n != MaxRequestBytes+1 || !errors.Is(err, errInflated) || source.n > 64<<10 {
		t.Errorf("%d bytes of output for %d of input, and %v", n, source.n, err)
	}
}

func TestHollowGzipFailsEarly(t *testing.T) {
	var blocks bytes.Buffer
	blocks.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
	for blocks.Len() < bomb {
		blocks.Write([]byte{0, 0, 0, 0xff, 0xff}) // a stored block without content
	}
	members := bytes.Repeat(compressed(t, nil), bomb/23)
	for name, data := range map[string][]byte{"empty blocks": blocks.Bytes(), "empty members": members} {
		source := &countingReader{Reader: bytes.NewReader(data)}
		b := &boundedGzip{limit: MaxRequestBytes}
		if err := b.Reset(source); err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, b)
		if n != 0 || source.n > 2*gzipSlack {
			t.Errorf("%s: %d bytes of output for %d of input, and %v", name, n, source.n, err)
		}
	}
}

func TestHonestGzipIsReadWhole(t *testing.T) {
	noise := make([]byte, 700<<10)
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	b := &boundedGzip{limit: MaxRequestBytes}
	for range 2 { // it is used again
		for _, content := range [][]byte{nil, []byte("x"), make([]byte, MaxRequestBytes), noise} {
			if err := b.Reset(bytes.NewReader(compressed(t, content))); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(b)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d of %d bytes, and %v", len(got), len(content), err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if b.Reset(new(bytes.Buffer)) == nil || b.Close() != nil {
				t.Error("an empty message is complete, or cannot be closed")
			}
		}
	}
	if err := b.Reset(bytes.NewReader([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 7})); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(b); err == nil {
		t.Error("damaged data was read")
	} else if _, corrupt := errors.AsType[flate.CorruptInputError](err); !corrupt {
		t.Errorf("damaged data: %v", err)
	}
}
