package shard

import "testing"

func TestSessionsOfBurstAreDropped(t *testing.T) {
	var pool sessionPool
	const n = 100
	rush := make([]*Session, n)
	for i := range rush {
		rush[i] = pool.take()
		rush[i].next()
	}
	for _, sess := range rush {
		pool.put(sess)
	}
	if len(pool.idle) != n {
		t.Fatalf("%d of %d sessions are there", len(pool.idle), n)
	}
	for _, sess := range rush {
		sess.since = sess.since.Add(-2 * sessionFor)
	}
	sess := pool.take()
	sess.next()
	pool.put(sess)
	if len(pool.idle) != 1 {
		t.Errorf("long after the rush %d sessions are kept, want 1", len(pool.idle))
	}
}
