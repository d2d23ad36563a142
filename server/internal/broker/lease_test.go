package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A topic whose leases have ended keeps no room for them, however they ended.
func TestATopicWithoutLeasesKeepsNoRoomForThem(t *testing.T) {
	for _, n := range []int{1, 7, maxSpareLeases, 5 * maxSpareLeases} {
		held := make([]driver.Delivery, n)
		for i := range held {
			held[i].ID = fmt.Sprint(i)
			held[i].Receipt = driver.Receipt{Handle: held[i].ID, Nonce: uint64(i)}
		}
		for how, end := range map[string]func(table *leaseTable) (ended int){
			"settled": func(table *leaseTable) (ended int) {
				for i := range held {
					if table.remove(held[i].ID, held[i].Receipt) {
						ended++
					}
				}
				return ended
			},
			"settled late": func(table *leaseTable) (ended int) {
				for i := range held {
					if table.drop(held[i].ID) {
						ended++
					}
				}
				return ended
			},
			"expired": func(table *leaseTable) (ended int) {
				if ended, left := table.expire(time.Minute - 1); ended != 0 || left != n {
					t.Errorf("%d ended and %d are left before their time", ended, left)
				}
				ended, _ = table.expire(time.Minute)
				return ended
			},
			"cleared": (*leaseTable).clear,
		} {
			var table leaseTable
			for round := range 2 { // the second with a map that was used before, perhaps
				if grown := table.add(held, holder{}, time.Now(), time.Minute); grown != n {
					t.Errorf("%s, round %d: %d leases more, want %d", how, round, grown, n)
				}
				if again := table.add(held[:1], holder{}, time.Now(), time.Minute); again != 0 {
					t.Errorf("%s, round %d: a lease that was there is %d more", how, round, again)
				}
				if ended := end(&table); ended != n {
					t.Errorf("%s, round %d: %d leases ended, want %d", how, round, ended, n)
				}
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
