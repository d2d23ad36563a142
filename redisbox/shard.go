package redisbox

import (
	"context"
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

	sessions sessionPool // of calls that do not go by a lane

	forwardMu  sync.Mutex  // guards forwarding
	forwarding *forwarding // under way; nil: none is
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

// callDurably runs a script that must not be lost or doubled, outside the lanes.
func (s *shard) callDurably(ctx context.Context, sc *script, within bool, args ...string) (answer, error) {
	sess := s.sessions.take()
	defer s.sessions.put(sess)
	how := s.queue.backend.durably(sess)
	how.within = within
	return s.call(ctx, sc, how, args...)
}

// serveDurably serves a load that does not go by a lane.
func (s *shard) serveDurably(ctx context.Context, l *load, within bool) error {
	sess := s.sessions.take()
	defer s.sessions.put(sess)
	how := s.queue.backend.durably(sess)
	how.within = within
	return s.serve(ctx, l, how)
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
