package broker

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"sync"
)

// cmac is AES-CMAC (RFC 4493) with one key. It is safe for concurrent use.
type cmac struct {
	block cipher.Block
	// whole and padded are combined with the last block: one of 16 bytes, and one of
	// fewer, which is padded.
	whole, padded [aes.BlockSize]byte
	spare         sync.Pool // of *cmacRun
}

// A cmacRun is what one MAC needs. It is pooled, because it is on the heap: ciphers are
// interfaces.
type cmacRun struct {
	mode   cipher.BlockMode
	vector [aes.BlockSize]byte // of mode: the last block that it has encrypted
	memory [512]byte           // for the message
}

func (c *cmac) init(key [16]byte) {
	c.block, _ = aes.NewCipher(key[:]) // it refuses only keys of another size
	var l [aes.BlockSize]byte
	c.block.Encrypt(l[:], l[:])
	c.whole = double(l)
	c.padded = double(c.whole)
}

// double multiplies by x in the field of 2^128 elements.
func double(in [aes.BlockSize]byte) (out [aes.BlockSize]byte) {
	high, low := binary.BigEndian.Uint64(in[:]), binary.BigEndian.Uint64(in[8:])
	binary.BigEndian.PutUint64(out[:], high<<1|low>>63)
	binary.BigEndian.PutUint64(out[8:], low<<1^high>>63*0x87)
	return out
}

// begin returns memory for a message, and what end needs.
func (c *cmac) begin() *cmacRun {
	if run, ok := c.spare.Get().(*cmacRun); ok {
		return run
	}
	run := new(cmacRun)
	run.mode = cipher.NewCBCEncrypter(c.block, run.vector[:])
	return run
}

// end returns the MAC of message, and overwrites it. message may be in the memory of run,
// which must not be used any more.
func (c *cmac) end(run *cmacRun, message []byte) (mac [aes.BlockSize]byte) {
	last := &c.whole
	if n := len(message) % aes.BlockSize; n > 0 || len(message) == 0 {
		last = &c.padded
		padding := [aes.BlockSize]byte{0x80}
		message = append(message, padding[:aes.BlockSize-n]...)
	}
	xor((*[aes.BlockSize]byte)(message[len(message)-aes.BlockSize:]), last)
	// A CMAC begins with a vector of zeros, and mode goes on with the last block.
	xor((*[aes.BlockSize]byte)(message), &run.vector)
	run.mode.CryptBlocks(message, message)
	mac = [aes.BlockSize]byte(message[len(message)-aes.BlockSize:])
	run.vector = mac
	c.spare.Put(run)
	return mac
}

func xor(state, with *[aes.BlockSize]byte) {
	order := binary.NativeEndian
	order.PutUint64(state[:], order.Uint64(state[:])^order.Uint64(with[:]))
	order.PutUint64(state[8:], order.Uint64(state[8:])^order.Uint64(with[8:]))
}
