package verify

import (
	"testing"
)

func TestOldGenerationEntriesExpire(t *testing.T) {
	c := newCache(cacheShards * 2) // one young and one old entry in each shard
	first, second := &cacheKey{0, 1}, &cacheKey{0, 2}
	v := &verdict{freshUntil: 10}
	c.put(first, v)
	c.put(second, v) // the first is old now
	if c.get(first, 9) != v {
		t.Error("the old entry was dropped before it expired")
	}
	c.put(second, v)
	if c.get(first, 10) != nil || c.get(second, 10) != nil {
		t.Error("an expired entry was returned")
	}
	if n := c.entries(); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}
