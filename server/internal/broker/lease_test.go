package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

// A queue keeps no memory for leases that have ended, however they ended.
func TestQueueWithoutLeasesKeepsNoLeaseMap(t *testing.T) {
	for _, n := range []int{1, 7, maxSpareLeases, 5 * maxSpareLeases} {
		held := make([]driver.Delivery, n)
		for i := range held {
			held[i].ID = fmt.Sprint(i)
			held[i].Receipt = driver.Receipt{Handle: held[i].ID, Nonce: uint64(i)}
		}
		for how, end := range map[string]func(table *leaseTable){
			"settled": func(table *leaseTable) {
				for i := range held {
					table.remove(endedLease{receipt: held[i].Receipt})
				}
			},
			"settled together": func(table *leaseTable) {
				var gone []endedLease
				for i := range held {
					gone = append(gone, endedLease{receipt: held[i].Receipt})
				}
				table.remove(gone...)
			},
			"settled late": func(table *leaseTable) {
				for i := range held {
					table.dropOther(driver.Receipt{Handle: held[i].ID, Nonce: 1 << 60})
				}
			},
			"expired": func(table *leaseTable) {
				if left := table.expire(time.Minute - 1); left != n {
					t.Errorf("%d are left before their time", left)
				}
				table.expire(time.Minute)
			},
			"cleared": (*leaseTable).clear,
		} {
			by := holder{token: capability.TokenID{1}}
			owner := ownerOf("acme", by.token)
			table := leaseTable{pools: &leasePools{inFlight: share.New("in-flight", "global_inflight", 1<<20, 0)}, tenant: "acme"}
			expect := func(round int, when string, want int) {
				if used := table.pools.inFlight.Held(owner[:]); used != int64(want) {
					t.Errorf("%s, round %d: %s %d leases count, want %d", how, round, when, used, want)
				}
			}
			for round := range 2 { // the second may reuse a map
				table.pools.inFlight.Charge(owner[:], int64(n))
				table.add(held, by, nil, time.Now(), time.Minute)
				table.pools.inFlight.Charge(owner[:], 1)
				table.add(held[:1], by, nil, time.Now(), time.Minute)
				expect(round, "with one taken again", n)
				end(&table)
				expect(round, "at the end", 0)
				if table.byID != nil {
					t.Errorf("%s, round %d: there is still room for leases, after %d", how, round, n)
				}
				if _, found := table.find(held[0].ID, 0); found {
					t.Errorf("%s, round %d: a lease that has ended is found", how, round)
				}
			}
		}
	}
}

// Tokens get back the units of their own leases from a call that ends those of several.
func TestLeasesEndedTogetherReturnToTheirTokens(t *testing.T) {
	table := leaseTable{pools: &leasePools{inFlight: share.New("in-flight", "global_inflight", 1<<20, 0)}, tenant: "acme"}
	var gone []endedLease
	for i, token := range []byte{1, 1, 2, 1, 2, 2, 3} {
		by := holder{token: capability.TokenID{token}}
		owner := ownerOf("acme", by.token)
		table.pools.inFlight.Charge(owner[:], 2) // one of them is for another lease
		d := driver.Delivery{Message: driver.Message{ID: fmt.Sprint(i)}, Receipt: driver.Receipt{Handle: fmt.Sprint(i), Nonce: uint64(i)}}
		table.add([]driver.Delivery{d}, by, nil, time.Now(), time.Minute)
		gone = append(gone, endedLease{receipt: d.Receipt}, endedLease{receipt: driver.Receipt{Handle: d.ID, Nonce: 99}})
	}
	table.remove(gone...)
	table.remove(gone...) // they have ended
	for token, want := range map[byte]int64{1: 3, 2: 3, 3: 1} {
		owner := ownerOf("acme", capability.TokenID{token})
		if held := table.pools.inFlight.Held(owner[:]); held != want {
			t.Errorf("token %d holds %d units, want %d", token, held, want)
		}
	}
}
