package redisbox

import (
	"sync"

	"github.com/mailboxmq/mailbox/internal/ident"
)

// shard is one shard of a queue, as this process sees it: the keys it has on the
// server, and the lanes that lead there.
type shard struct {
	queue  *queue
	number int
	keys   []string
	clock  clock
	minder minder

	// The lanes that carry what is sent, settled and received. Who sends does not
	// wait for consumers, nor they for him. Consumers have one lane for both things
	// that they do, unless replicas have to confirm: receives do not wait for them.
	sends, settles, receives *lane

	idMu sync.Mutex // guards ids
	ids  *ident.Source

	forwardMu sync.Mutex // one at a time moves dead letters to another queue
}

func newShard(q *queue, number int) *shard {
	s := &shard{
		queue: q, number: number,
		keys: shardKeys(q.backend.options.Prefix, q.name, number),
		ids:  ident.NewSource(),
	}
	s.minder.init(s)
	newLane := func() *lane { return &lane{crew: &q.backend.running, carry: s.carry} }
	s.sends, s.settles = newLane(), newLane()
	s.receives = s.settles
	if q.backend.options.Replicas > 0 {
		s.receives = newLane()
	}
	return s
}

// newID returns the next message id, with the server's time in it.
func (s *shard) newID() string {
	var text [ident.TextLen]byte
	wall := s.clock.wallNow()
	s.idMu.Lock()
	s.ids.Next(wall, text[:])
	s.idMu.Unlock()
	return string(text[:])
}

// Receipts carry the shard in the upper 16 bits of the place. The handle, which
// is the message's id, and the nonce tell the rest; the lower bits only show that
// the receipt is whole.
const placeBits = 48

func (s *shard) place(id string) uint64 {
	return uint64(s.number)<<placeBits | hash(id)&(1<<placeBits-1)
}
