package audit

import (
	"maps"
	"slices"
)

// An owner is what records are counted for: a tenant, then a minted token.
type owner struct{ tenant, token string }

func ownerOf(r Record) owner { return owner{r.Tenant, r.TokenID} }

// trim returns the records that stay in a log with so much room. Tenants that use less than
// an equal part of the room keep all of theirs. The others keep their latest, and what they
// keep is divided among their tokens in the same way. So no tenant, and no token of a
// tenant, can push out all records of another.
func trim[T any](records []T, room int64, size func(T) int64, ownerOf func(T) owner) []T {
	tenants := make(map[string]int64)
	tokens := make(map[string]map[string]int64) // by tenant
	for _, r := range records {
		o := ownerOf(r)
		if tokens[o.tenant] == nil {
			tokens[o.tenant] = make(map[string]int64)
		}
		tenants[o.tenant] += size(r)
		tokens[o.tenant][o.token] += size(r)
	}
	part := equalPart(tenants, room)
	left := make(map[owner]int64)
	for tenant, used := range tokens {
		tokenPart := equalPart(used, part)
		for token := range used {
			left[owner{tenant, token}] = tokenPart
		}
	}
	var kept []T
	for _, r := range slices.Backward(records) {
		o := ownerOf(r)
		if left[o] -= size(r); left[o] >= 0 { // an owner that is over it once stays so
			kept = append(kept, r)
		}
	}
	slices.Reverse(kept)
	return kept
}

// equalPart returns the most that each may use, so that all fit into the room: those that
// use less leave the rest to the others.
func equalPart[K comparable](used map[K]int64, room int64) int64 {
	sizes := slices.Sorted(maps.Values(used))
	for i, size := range sizes {
		if part := room / int64(len(sizes)-i); size > part {
			return part
		}
		room -= size
	}
	return room + slices.Max(append(sizes, 0)) // all fit
}
