package sqswire

import "io"

// A Body is the body of a request that is there as a whole. [Read] uses it as it is,
// without a copy, so it must not change until the call was answered.
type Body struct{ rest []byte }

// Reset makes it another body.
func (b *Body) Reset(data []byte) { b.rest = data }

// Read reads some of what is left.
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

// take returns what is left.
func (b *Body) take() []byte {
	rest := b.rest
	b.rest = nil
	return rest
}
