package envelope

import (
	"encoding/binary"
	"math/bits"
)

// referenceBLAKE3 is BLAKE3-256 written from its definition, for clarity and
// not for speed: an independent check of the library that the package uses.
func referenceBLAKE3(data []byte) [32]byte {
	output := referenceTree(data, 0)
	words := output.compress(0, referenceRoot)
	var sum [32]byte
	for i, word := range words[:8] {
		binary.LittleEndian.PutUint32(sum[4*i:], word)
	}
	return sum
}

const (
	referenceChunkStart = 1 << iota
	referenceChunkEnd
	referenceParent
	referenceRoot
)

var (
	referenceIV = [8]uint32{
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
		0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	}
	referencePermutation = [16]int{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8}
)

// A referenceNode is the last compression of a chunk or parent, not yet done:
// whether it is the root is known only later.
type referenceNode struct {
	chain   [8]uint32
	block   [16]uint32
	counter uint64
	length  uint32
	flags   uint32
}

// referenceTree hashes data, whose first chunk has this number: the left side
// is the largest complete tree that leaves something for the right.
func referenceTree(data []byte, chunk uint64) referenceNode {
	const chunkLen = 1024
	if len(data) <= chunkLen {
		return referenceChunk(data, chunk)
	}
	left := chunkLen << (bits.Len(uint((len(data)-1)/chunkLen)) - 1)
	node := referenceNode{chain: referenceIV, length: 64, flags: referenceParent}
	leftNode := referenceTree(data[:left], chunk)
	leftWords := leftNode.compress(leftNode.counter, 0)
	rightNode := referenceTree(data[left:], chunk+uint64(left/chunkLen))
	rightWords := rightNode.compress(rightNode.counter, 0)
	copy(node.block[:8], leftWords[:8])
	copy(node.block[8:], rightWords[:8])
	return node
}

func referenceChunk(data []byte, chunk uint64) referenceNode {
	node := referenceNode{chain: referenceIV, counter: chunk, flags: referenceChunkStart}
	for {
		n := min(len(data), 64)
		var block [64]byte
		copy(block[:], data[:n])
		for i := range node.block {
			node.block[i] = binary.LittleEndian.Uint32(block[4*i:])
		}
		node.length = uint32(n)
		if data = data[n:]; len(data) == 0 {
			node.flags |= referenceChunkEnd
			return node
		}
		words := node.compress(chunk, 0)
		copy(node.chain[:], words[:8])
		node.flags = 0
	}
}

func (n *referenceNode) compress(counter uint64, flags uint32) [16]uint32 {
	v := [16]uint32{
		0: n.chain[0], 1: n.chain[1], 2: n.chain[2], 3: n.chain[3],
		4: n.chain[4], 5: n.chain[5], 6: n.chain[6], 7: n.chain[7],
		8: referenceIV[0], 9: referenceIV[1], 10: referenceIV[2], 11: referenceIV[3],
		12: uint32(counter), 13: uint32(counter >> 32), 14: n.length, 15: n.flags | flags,
	}
	mix := func(a, b, c, d int, x, y uint32) {
		v[a] += v[b] + x
		v[d] = bits.RotateLeft32(v[d]^v[a], -16)
		v[c] += v[d]
		v[b] = bits.RotateLeft32(v[b]^v[c], -12)
		v[a] += v[b] + y
		v[d] = bits.RotateLeft32(v[d]^v[a], -8)
		v[c] += v[d]
		v[b] = bits.RotateLeft32(v[b]^v[c], -7)
	}
	m := n.block
	for range 7 {
		for i := range 4 {
			mix(i, 4+i, 8+i, 12+i, m[2*i], m[2*i+1])
		}
		for i := range 4 {
			mix(i, 4+(i+1)%4, 8+(i+2)%4, 12+(i+3)%4, m[8+2*i], m[8+2*i+1])
		}
		var permuted [16]uint32
		for i, from := range referencePermutation {
			permuted[i] = m[from]
		}
		m = permuted
	}
	for i := range 8 {
		v[i] ^= v[i+8]
		v[i+8] ^= n.chain[i]
	}
	return v
}
