package redisbox

import (
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// TestSlotsAreListedPageByPage (RPL-5): a bucket has several pages of slots, which end at a few times, and ids of slots that were discarded.
func TestSlotsAreListedPageByPage(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.SharedServer(t).ClientOption())
	r := open(t, client, &Options{Prefix: redistest.Prefix(t)}).newReplyStore(0)
	ids := inBucket(r, 1000)
	createAll(t, r, ids, hold)
	k := r.buckets[0]
	var want []string
	for i, id := range ids {
		ends := client.B().Zadd().Key(k.Key("ends")).ScoreMember().ScoreMember(float64(4e15+i/300), id).Build()
		if err := client.Do(t.Context(), ends).Error(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 || i > 300 && i < 900 { // more than a page of them follow each other
			if err := client.Do(t.Context(), client.B().Hdel().Key(k.Key("slots")).Field(id).Build()).Error(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want = append(want, id)
	}
	if page, err := k.List().Next(t.Context()); err != nil || len(page) == 0 || len(page) > shard.SlotsListed {
		t.Errorf("the first page has %d slots, %v", len(page), err)
	}
	slices.Sort(want)
	if got := listed(t, r); !slices.Equal(got, want) {
		t.Errorf("%d slots are listed, want %d, each once", len(got), len(want))
	}
}

// TestListReadsLargeAnswersInParts (RPL-5): a page of slots with large answers is short, and every page is answered soon.
func TestListReadsLargeAnswersInParts(t *testing.T) {
	t.Parallel()
	const pageBytes = 1 << 20 // see reply_list.lua
	r := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}).newReplyStore(0)
	ids := inBucket(r, 40)
	createAll(t, r, ids, hold)
	body := make([]byte, 100<<10)
	for _, id := range ids {
		if err := r.Resolve(t.Context(), id, driver.Answer{Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	list, total := r.buckets[0].List(), 0
	for {
		page, err := list.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		if read := len(page) * len(body); read > pageBytes+2*len(body) {
			t.Errorf("a page has %d slots with %d bytes of answers", len(page), read)
		}
		total += len(page)
	}
	if total != len(ids) {
		t.Errorf("%d of %d slots are listed", total, len(ids))
	}
}

// listed returns the ids of all slots, sorted.
func listed(t *testing.T, r *replyStore) (ids []string) {
	t.Helper()
	for slot, err := range r.Slots(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, slot.ID)
	}
	slices.Sort(ids)
	return ids
}
