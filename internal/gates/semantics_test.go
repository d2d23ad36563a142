package gates_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestG2SendsWithOneKeyAreOneMessage sends the same message from many clients of all
// protocols at once.
func TestG2SendsWithOneKeyAreOneMessage(t *testing.T) {
	d := start(t, onDisk...)
	const rounds, each = 10, 16
	for round := range rounds {
		queue := fmt.Sprintf("orders-%d", round)
		var mu sync.Mutex
		var ids []string
		firsts := 0
		var clients sync.WaitGroup
		for _, s := range surfaces {
			client := s.open(t, d, d.token)
			for range each {
				clients.Go(func() {
					id, duplicate, err := client.send(t.Context(), queue, "key", []byte("the same"))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if !duplicate {
						firsts++
					}
					if !slices.Contains(ids, id) {
						ids = append(ids, id)
					}
				})
			}
		}
		clients.Wait()
		if len(ids) != 1 || firsts != 1 {
			t.Errorf("%s: %d ids, and %d sends were not reported as duplicates", queue, len(ids), firsts)
		}
		if got := openHTTP(t, d.http, d.token).stats(t, queue); got != (counts{Ready: 1}) {
			t.Errorf("%s: %+v, want one message", queue, got)
		}
	}
	t.Logf("%d times %d sends with one key by three protocols: one message each", rounds, each*len(surfaces))
}

// TestG3UnackedMessageIsDeliveredAgain tests visibility, and the finality of an ack, over each
// protocol; and no receiver gets a message that another one holds.
func TestG3UnackedMessageIsDeliveredAgain(t *testing.T) {
	d := start(t, append(inMemory, "--max-attempts=1000")...)
	onEach(t, d, func(t *testing.T, s surface) {
		ctx, queue := t.Context(), "one"
		id, _, err := s.send(ctx, queue, t.Name(), []byte("tea"))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		first, err := s.receive(ctx, queue, wanted{most: 10, visibility: 300 * time.Millisecond})
		if err != nil || len(first) != 1 || first[0].attempt != 1 {
			t.Fatalf("receive: %+v, %v", first, err)
		}
		again, err := s.receive(ctx, queue, wanted{most: 10, visibility: time.Minute, wait: 10 * time.Second})
		took := time.Since(began)
		if err != nil || len(again) != 1 || again[0].id != id || again[0].attempt != 2 {
			t.Fatalf("after its visibility: %+v, %v", again, err)
		}
		if took < 300*time.Millisecond {
			t.Errorf("it was delivered again after %v, within the visibility of 300ms", took)
		}
		if err := s.ack(ctx, queue, first[0]); codeOf(err) != "E_NOT_FOUND" {
			t.Errorf("the ack of the expired delivery: %v", err)
		}
		if err := s.ack(ctx, queue, again[0]); err != nil {
			t.Errorf("the ack of the current delivery: %v", err)
		}
		t.Logf("it was delivered again %v after a receive with a visibility of 300ms", round(took))
	})
	race(t, d)
}

// race lets many receivers receive and ack with the shortest visibility.
func race(t *testing.T, d *daemon) {
	t.Helper()
	const queue, messages = "many", 300
	first := surfaces[0].open(t, d, d.token)
	for i := range messages {
		if _, _, err := first.send(t.Context(), queue, fmt.Sprint(i), []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	book := newLedger()
	var receivers sync.WaitGroup
	for n := range 9 {
		client := surfaces[n%3].open(t, d, d.token)
		receivers.Go(func() {
			for {
				began := time.Now()
				got, err := client.receive(t.Context(), queue, wanted{most: 5, visibility: 250 * time.Millisecond, wait: 600 * time.Millisecond})
				if err != nil {
					t.Error(err)
					return
				}
				if len(got) == 0 {
					return
				}
				for i, m := range got {
					book.got(m, began)
					if i == 0 && book.answers.Add(1)%20 == 0 {
						pause(260 * time.Millisecond) // longer than the visibility, on purpose
					}
					if err := client.ack(t.Context(), queue, m); err == nil {
						book.settled(m)
					} else if codeOf(err) != "E_NOT_FOUND" {
						t.Error(err)
					}
				}
			}
		})
	}
	receivers.Wait()
	book.reportErrors(t)
	if left := openHTTP(t, d.http, d.token).stats(t, queue); left != (counts{}) || len(book.acked) != messages {
		t.Errorf("%d of %d were acked, and %+v is left", len(book.acked), messages, left)
	}
	t.Logf("%d messages to 9 receivers of three protocols, %d deliveries came again before their ack, and none after it", messages, book.redelivered.Load())
}

// TestG8DedupWindowEnds: within the window a repeated send is the same message, and
// another body is a conflict; after it the key is free.
func TestG8DedupWindowEnds(t *testing.T) {
	const window = 2 * time.Second
	for name, kind := range map[string][]string{"in memory": inMemory, "on disk": onDisk} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t, append(kind, "--default-visibility=1s", "--t-replay="+window.String())...)
			onEach(t, d, func(t *testing.T, s surface) {
				t.Parallel()
				ctx, queue := t.Context(), t.Name()
				began := time.Now()
				first, _, err := s.send(ctx, queue, "key", []byte("tea"))
				if err != nil {
					t.Fatal(err)
				}
				sent := time.Now()
				repeats := 0
				for ; ; repeats++ {
					asked := time.Now()
					id, duplicate, err := s.send(ctx, queue, "key", []byte("tea"))
					if err != nil {
						t.Fatal(err)
					}
					if !duplicate {
						if since := time.Since(began); since < window || id == first {
							t.Errorf("the key was free after %v, for %s (first %s)", since, id, first)
						}
						break
					}
					if asked.After(sent.Add(window)) || id != first {
						t.Errorf("%v after the first send the key is not free: %s (first %s)", asked.Sub(sent), id, first)
						break
					}
					pause(50 * time.Millisecond)
				}
				t.Logf("%d repeats were recognised, and after %v the key was free", repeats, round(time.Since(sent)))
			})
		})
	}
}

// TestG9OrderHolds: messages of one client of any protocol are received in their
// order, batch by batch, by clients of all protocols in turn.
func TestG9OrderHolds(t *testing.T) {
	d := start(t, onDisk...)
	const messages = 600
	for i, from := range surfaces {
		queue := "from-" + from.name
		sender := from.open(t, d, d.token)
		for n := range messages / len(surfaces) {
			if _, _, err := sender.send(t.Context(), queue, fmt.Sprint(n), []byte(fmt.Sprint(n))); err != nil {
				t.Fatal(err)
			}
		}
		for n := 0; n < messages/len(surfaces); {
			s := surfaces[(n+i)%len(surfaces)]
			got, err := s.open(t, d, d.token).receive(t.Context(), queue, wanted{most: 7, visibility: time.Minute})
			if err != nil || len(got) == 0 {
				t.Fatalf("%s by %s: %d messages, %v", queue, s.name, len(got), err)
			}
			for _, m := range got {
				if string(m.body) != fmt.Sprint(n) {
					t.Fatalf("%s by %s: got %s, want %d", queue, s.name, m.body, n)
				}
				n++
			}
		}
	}
	t.Logf("%d messages by three protocols, received in their order by all three in turn", messages)
}
