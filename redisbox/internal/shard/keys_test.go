package shard

import "testing"

func TestNoTwoShardsShareKeys(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range []string{"a", "a:1", "1:a", "queue:a", "queue.1:a", ".1:a", "1"} {
		for shard := range 3 {
			for _, key := range Keys("", name, shard) {
				if other, taken := seen[key]; taken {
					t.Errorf("%q and %q share the key %s", name, other, key)
				}
				seen[key] = name
			}
		}
	}
}
