package sqswire

import "io"

// A Body is the complete body of a request in memory. [Read] uses it without a copy, so
// it must not change until the call is answered.
type Body struct{ rest []byte }

// Reset replaces the content.
func (b *Body) Reset(data []byte) { b.rest = data }

// Read reads from the unread part.
func (b *Body) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close does nothing.
func (*Body) Close() error { return nil }

// take returns the unread part.
func (b *Body) take() []byte {
	rest := b.rest
	b.rest = nil
	return rest
}
