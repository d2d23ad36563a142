package broker

// Strict reports whether a topic, as it is open now, has strict groups: what is
// received from it for several receivers must not be divided among them. It is true
// for a topic that is not open, of which that is not known. It asks for no
// authority, because it says nothing to a client, and does no I/O.
func (c Caller) Strict(name string) bool {
	key := topicKey{c.tenant, name}
	t := c.broker.topics.shard(key).acquire(key)
	if t == nil {
		return true
	}
	defer t.release(c.broker.now())
	return t.queue.Traits().StrictGroups
}
