package engine

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// Dedup remembers dedup keys for a dedup window. It belongs to a queue and not to a
// shard, because a key must be found whichever shard its message went to. Like Shard
// it does no I/O and is not safe for concurrent use.
//
// A key is remembered for its whole window. There is no earlier eviction: a full
// table refuses new keys. Entries are in chunks in the order in which they were
// added, which is the order in which they end, with an open-addressed index of
// 32-bit numbers. An entry costs its 56 bytes and about five more.
type Dedup struct {
	window time.Duration
	max    int

	chunks []dedupChunk // from the chunk of first on
	spare  dedupChunk   // nil: none
	first  uint64       // number of the oldest entry
	next   uint64       // number of the next entry
	live   int          // entries found through the index

	index []uint32 // low bits of entry numbers; 0 is empty
}

// Digest is a 128-bit hash. Keys are hashed with a secret, so that a client cannot
// construct collisions.
type Digest [16]byte

type dedupEntry struct {
	key     Digest
	content Digest
	id      [16]byte
	ends    Instant
}

const (
	dedupChunkLen = 256
	minDedupChunk = 1
	maxIdleChunk  = 32 // capacity that an empty table keeps
	minDedupIndex = 8
)

// A dedupChunk grows to dedupChunkLen entries. It starts small because many queues
// see few keys.
type dedupChunk []dedupEntry

// Verdict is what Dedup finds out about a key.
type Verdict uint8

// The verdicts.
const (
	// Fresh: the key is free, and there is room to remember it.
	Fresh Verdict = iota
	// Repeated: the key was used for the same message.
	Repeated
	// Conflicting: the key was used for another message.
	Conflicting
	// Crowded: the key is free, but the table is full.
	Crowded
)

// NewDedup returns a table that remembers up to most keys for window each.
func NewDedup(window time.Duration, most int) *Dedup {
	// Entry numbers start at a chunk boundary other than 0.
	return &Dedup{window: window, max: most, first: dedupChunkLen, next: dedupChunkLen}
}

// Configure changes the window of new keys and the size of the table. Keys that are
// remembered keep the end of their window.
func (d *Dedup) Configure(window time.Duration, most int) { d.window, d.max = window, most }

// Len returns the number of remembered keys, including some whose window may be over.
func (d *Dedup) Len() int { return d.live }

// Remembered forgets the keys whose window is over and returns the number of others.
func (d *Dedup) Remembered(now Instant) int {
	d.expire(now)
	return d.live
}

// Lookup returns what is known about a key. For Repeated, id is that of the first
// message; for Crowded, wait is how long until there is room.
func (d *Dedup) Lookup(now Instant, key, content Digest) (v Verdict, id [16]byte, wait time.Duration) {
	d.expire(now)
	if slot := d.find(key); slot >= 0 {
		e := d.entry(d.number(d.index[slot]))
		switch {
		case e.ends <= now: // still here because an older entry has a longer window
		case e.content == content:
			return Repeated, e.id, 0
		default:
			return Conflicting, e.id, 0
		}
	}
	if d.live >= d.max {
		return Crowded, id, time.Duration(d.entry(d.first).ends - now)
	}
	return Fresh, id, 0
}

// Remember adds a key that Lookup found Fresh, and returns when its window ends.
func (d *Dedup) Remember(now Instant, key, content Digest, id [16]byte) (ends Instant) {
	ends = now.Add(d.window)
	d.Restore(now, key, content, id, ends)
	return ends
}

// Restore adds a key that was remembered before, until ends. Keys are restored in
// the order in which they end.
func (d *Dedup) Restore(now Instant, key, content Digest, id [16]byte, ends Instant) {
	if slot := d.find(key); slot >= 0 {
		d.unindex(slot) // its window is over; see Lookup
	}
	if d.live >= len(d.index)/8*7 {
		d.resize(max(minDedupIndex, len(d.index)+max(len(d.index)/4, min(len(d.index), 64))))
	}
	if uint32(d.next) == 0 { // in the index, 0 means empty
		d.append(dedupEntry{ends: now})
	}
	d.place(d.append(dedupEntry{key: key, content: content, id: id, ends: ends}))
	d.live++
}

// expire drops the oldest entries whose window is over.
func (d *Dedup) expire(now Instant) {
	for d.first < d.next {
		e := d.entry(d.first)
		if e.ends > now {
			break
		}
		if slot := d.find(e.key); slot >= 0 && d.number(d.index[slot]) == d.first {
			d.unindex(slot)
		}
		d.first++
		if d.first%dedupChunkLen == 0 {
			d.dropChunk()
		}
	}
	if d.first == d.next && len(d.chunks) > 0 {
		d.restart()
	}
	if len(d.index) > 1024 && d.live < len(d.index)/4 {
		d.resize(max(64, d.live*2))
	}
}

func (d *Dedup) append(e dedupEntry) (number uint64) {
	number = d.next
	d.next++
	chunk := int(number/dedupChunkLen - d.first/dedupChunkLen)
	if chunk == len(d.chunks) {
		d.chunks = append(d.chunks, d.spare)
		d.spare = nil
	}
	c := d.chunks[chunk]
	if len(c) == cap(c) {
		room := min(max(minDedupChunk, 2*cap(c)), dedupChunkLen)
		if d.live >= dedupChunkLen {
			room = dedupChunkLen
		}
		c = append(make(dedupChunk, 0, room), c...)
	}
	d.chunks[chunk] = append(c, e)
	return number
}

// dropChunk drops the first chunk, in which all windows are over. A busy table keeps
// the chunk for reuse.
func (d *Dedup) dropChunk() {
	if d.live >= dedupChunkLen {
		d.spare = d.chunks[0][:0]
	}
	d.chunks[0] = nil
	d.chunks = d.chunks[1:]
}

// restart gives an empty table a new first chunk, so that a table with few keys does
// not fill a large chunk with keys whose window is over.
func (d *Dedup) restart() {
	if cap(d.chunks[0]) <= maxIdleChunk {
		d.spare = d.chunks[0][:0]
	}
	d.first += dedupChunkLen - d.first%dedupChunkLen
	d.next, d.chunks = d.first, d.chunks[:0]
	clear(d.chunks[:1])
}

func (d *Dedup) entry(number uint64) *dedupEntry {
	return &d.chunks[number/dedupChunkLen-d.first/dedupChunkLen][number%dedupChunkLen]
}

// number restores an entry number from its low bits: all numbers in the index
// are within 2³² of the first.
func (d *Dedup) number(low uint32) uint64 { return d.first + uint64(low-uint32(d.first)) }

func (d *Dedup) home(key Digest) int {
	hi, _ := bits.Mul64(binary.LittleEndian.Uint64(key[:8]), uint64(len(d.index)))
	return int(hi)
}

// find returns the slot of key in the index, or -1.
func (d *Dedup) find(key Digest) int {
	if len(d.index) == 0 {
		return -1
	}
	for slot := d.home(key); ; slot = d.after(slot) {
		low := d.index[slot]
		if low == 0 {
			return -1
		}
		if d.entry(d.number(low)).key == key {
			return slot
		}
	}
}

func (d *Dedup) after(slot int) int {
	if slot++; slot < len(d.index) {
		return slot
	}
	return 0
}

func (d *Dedup) place(number uint64) {
	slot := d.home(d.entry(number).key)
	for d.index[slot] != 0 {
		slot = d.after(slot)
	}
	d.index[slot] = uint32(number)
}

// unindex empties a slot and closes the gap, so that no search stops early.
func (d *Dedup) unindex(slot int) {
	d.live--
	gap := slot
	d.index[gap] = 0
	for next := d.after(gap); d.index[next] != 0; next = d.after(next) {
		home := d.home(d.entry(d.number(d.index[next])).key)
		// The entry may move to the gap unless its home lies after it.
		between := gap < home && home <= next
		if gap > next {
			between = gap < home || home <= next
		}
		if !between {
			d.index[gap], d.index[next] = d.index[next], 0
			gap = next
		}
	}
}

// resize rebuilds the index with n slots.
func (d *Dedup) resize(n int) {
	old := d.index
	d.index = make([]uint32, n)
	for _, low := range old {
		if low != 0 {
			d.place(d.number(low))
		}
	}
}
