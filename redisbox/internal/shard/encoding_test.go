package shard

import (
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

// FuzzStoredRecords reads records with a valid hash and any content, and records with an
// invalid hash.
func FuzzStoredRecords(f *testing.F) {
	const id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	record := packRecord(id, 1e18, &driver.Outgoing{Body: []byte("tea"), Group: "g", Attributes: map[string]string{"k": "v"}})
	f.Add(record[hashBytes:])
	f.Add(strings.Repeat("\xff", 64))
	f.Fuzz(func(t *testing.T, rest string) {
		hash := hashOf(id, []byte(rest))
		for _, record := range []string{rest, string(hash[:]) + rest} {
			var m driver.Message
			sound := ReadSent(&m, id, record)
			if sound && len(m.Body) > len(rest) {
				t.Errorf("a record of %d bytes has a body of %d", len(rest), len(m.Body))
			}
		}
	})
}

// FuzzScriptValues reads values that scripts pack, and stored settings.
func FuzzScriptValues(f *testing.F) {
	f.Add(PackDoubles(1, 2, 3, 4, 5, 6, 7, 8, 9) + "\x01g\x00\x02\x00no\x00\x00")
	f.Add(string(make([]byte, 8*entryDoubles+6)) + "\x20" + PackDoubles(1, 2) + "\x09" + PackDoubles(3))
	f.Add(string(make([]byte, 8*entryDoubles+6)) + "\x20" + PackDoubles(0, 0) + "\x00" + PackDoubles(0) + strings.Repeat("k", 16) + "\x03" +
		"01ARZ3NDEKTSV4RRFFQ69G5FAV" + PackDoubles(1) + "\x01g")
	f.Add("r" + PackDoubles(1, 2, 3, 4) + "\x00\x00\x01\x00\x00\x00x\x00\x00\x00\x00body")
	f.Add(Stored(driver.Config{MaxMessages: 3, DeadLetterTo: "dead"}, 0))
	f.Fuzz(func(t *testing.T, text string) {
		if e, ok := ReadEntry(text); ok && len(e.LastError) > len(text) {
			t.Errorf("%d bytes have an error of %d", len(text), len(e.LastError))
		} else if e.Priority < 0 || e.Priority > driver.MaxPriority {
			t.Errorf("%q has priority %d", text, e.Priority)
		} else if len(e.Unique)%hashBytes != 0 || len(e.Unique)+len(e.sentAs)+len(e.origin) > len(text) {
			t.Errorf("%q has key %q, sent as %q, origin %q", text, e.Unique, e.sentAs, e.origin)
		} else {
			var m driver.Message
			_ = e.ReadSent(&m, e.sentAs, packRecord(e.sentAs, 0, &driver.Outgoing{}))
		}
		if slot, err := ReadSlot("id", text); err == nil && len(slot.Answer.Body) > len(text) {
			t.Errorf("%d bytes have an answer of %d", len(text), len(slot.Answer.Body))
		}
		if config, err := parseStored(text); err == nil {
			again, err := parseStored(Stored(config, 0))
			if err != nil || again != config {
				t.Errorf("%q is read as %+v, and what that is written as, as %+v, %v", text, config, again, err)
			}
		}
	})
}

func TestEntryTellsWhetherMessageWasReleased(t *testing.T) {
	entry := string(make([]byte, 8*entryDoubles+6)) // the texts are empty
	for marks, want := range map[string]bool{
		"":     false, // of versions before
		"\x20": false, // first is the time of the latest delivery
		"\x21": true,
		"\x50": true,
	} {
		if e, ok := ReadEntry(entry + marks); !ok || e.released != want {
			t.Errorf("marks %q: got released %v, readable %v; want %v and true", marks, e.released, ok, want)
		}
	}
}

func TestEntryHasPriorityBehindTimeToLive(t *testing.T) {
	entry := string(make([]byte, 8*entryDoubles+6)) + "\x00" // the texts are empty
	for rest, want := range map[string]int{
		"":                0,
		PackDoubles(1, 2): 0,
		PackDoubles(0, 0) + "\x05" + PackDoubles(3): 5,
		PackDoubles(0, 0) + "\xff" + PackDoubles(3): driver.MaxPriority,
	} {
		if e, ok := ReadEntry(entry + rest); !ok || e.Priority != want {
			t.Errorf("%q: got priority %d, readable %v; want %d and true", rest, e.Priority, ok, want)
		}
	}
}

func TestReplacedMessageHasFirstTimeAndGroup(t *testing.T) {
	const id, sentAs = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01BX5ZZKBKACTAV9WEVGEMMVRZ"
	entry := string(make([]byte, 8*entryDoubles+6)) + "\x00" + PackDoubles(0, 0) + "\x00" + PackDoubles(0) // no texts, and no priority
	key := strings.Repeat("k", hashBytes)
	first := packRecord(id, 1e18, &driver.Outgoing{Body: []byte("first"), Group: "g"})
	last := packRecord(sentAs, 2e18, &driver.Outgoing{Body: []byte("last"), Group: "h"})
	origin := first[hashBytes+sizeBytes:][:timeBytes+2]
	for _, test := range []struct{ tail, record, body, group string }{
		{key + "\x01", first, "first", "g"},
		{key + "\x03" + sentAs + origin, last, "last", "g"},
		{key + "\x03" + sentAs + origin, first, "", ""}, // is not what was sent last
		{key + "\x03" + sentAs + origin[:timeBytes], last, "last", "h"},
	} {
		e, ok := ReadEntry(entry + test.tail)
		if !ok || e.Unique != key {
			t.Fatalf("%q: got key %q, readable %v", test.tail, e.Unique, ok)
		}
		var m driver.Message
		if sound := e.ReadSent(&m, id, test.record); sound != (test.body != "") || string(m.Body) != test.body || m.Group != test.group {
			t.Errorf("%q: got %q of group %q, sound %v; want %q of %q", test.tail, m.Body, m.Group, sound, test.body, test.group)
		}
		if test.group == "g" && m.EnqueuedAt.UnixNano() != 1e18 {
			t.Errorf("%q: sent at %v, want the first time", test.tail, m.EnqueuedAt)
		}
	}
}
