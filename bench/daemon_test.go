package main

import (
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeServer is a queue that damages the message with the number spoilt.
type fakeServer struct {
	queue chan []byte
	spoil func(server *fakeServer, body []byte)
}

const spoilt = 7

func (f *fakeServer) send(bodies [][]byte) error {
	for _, body := range bodies {
		body = append([]byte(nil), body...)
		if binary.BigEndian.Uint64(body[8:]) == spoilt && f.spoil != nil {
			f.spoil(f, body)
			continue
		}
		f.queue <- body
	}
	return nil
}

func (f *fakeServer) receive() ([][]byte, error) {
	select {
	case body := <-f.queue:
		return [][]byte{body}, nil
	case <-time.After(daemonWait):
		return nil, nil
	}
}

func (f *fakeServer) ack() error { return nil }

// A figure counts only if every message came exactly once, so a run fails for any
// server that loses, repeats or changes one.
func TestRunFailsUnlessMessagesArriveExactlyOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*fakeServer, []byte)
		want  string
	}{
		{name: "all well"},
		{"lost", func(*fakeServer, []byte) {}, "came"},
		{"repeated", func(f *fakeServer, body []byte) { f.queue <- body; f.queue <- body }, "received"},
		{"repeated instead of another", func(f *fakeServer, body []byte) {
			binary.BigEndian.PutUint64(body[8:], spoilt-1)
			f.queue <- body
		}, "was lost or came twice"},
		{"of another run", func(f *fakeServer, body []byte) { body[0]++; f.queue <- body }, "did not send"},
		{"cut off", func(f *fakeServer, body []byte) { f.queue <- body[:bodyBytes-1] }, "did not send"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &fakeServer{queue: make(chan []byte, 10_000), spoil: c.spoil}
				stand := &daemonStand{shape: shapeOf(1)}
				for range daemonWorkers {
					stand.producers = append(stand.producers, server.send)
					stand.consumers = append(stand.consumers, server)
				}
				pace, err := stand.trickle(time.Second)
				switch {
				case c.want == "" && (err != nil || pace.Rate < daemonRate*0.9):
					t.Errorf("got %.0f messages a second and %v, want about %d and no error", pace.Rate, err, daemonRate)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("got error %v, want one with %q", err, c.want)
				}
			})
		})
	}
}

// A slow server does not drain W4 in time. What came then still counts, unless a message
// came twice.
func TestRunThatEndsEarlyStillRefusesDuplicates(t *testing.T) {
	for _, c := range []struct {
		name  string
		got   []uint64
		until time.Duration
		want  string
	}{
		{"all came", []uint64{3, 1, 2}, 0, ""},
		{"one is left", []uint64{3, 1}, 0, "sent 3 messages and received 2"},
		{"one is left when the time is up", []uint64{3, 1}, time.Second, ""},
		{"one came twice when the time is up", []uint64{1, 1}, time.Second, "was lost or came twice"},
		{"one that was not sent", []uint64{1, 2, 4}, time.Second, "was lost or came twice"},
	} {
		r := &daemonRun{got: c.got, until: c.until}
		r.last.Store(3)
		if err := r.check(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.want)
		}
	}
}
