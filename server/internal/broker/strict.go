package broker

// Strict reports whether a queue, as it is open now, has strict groups: what is
// received from it for several receivers must not be divided among them. It is true
// for a queue that is not open, of which that is not known. It asks for no
// authority, because it says nothing to a client, and does no I/O.
func (c Caller) Strict(name string) bool {
	key := queueKey{c.tenant, name}
	q := c.broker.queues.shard(key).acquire(key)
	if q == nil {
		return true
	}
	defer q.release(c.broker.now())
	return q.handle.Traits().StrictGroups
}
