package diskbox

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// moveQueues are the queues between which messages move until the process is killed.
var moveQueues = []string{"left", "right"}

// runMoves moves messages in both directions until it is killed. It prints a line for each
// move.
func runMoves(dir string) error {
	ctx := context.Background()
	b, err := Open(ctx, dir, &Options{small: true})
	if err != nil {
		return err
	}
	failed := make(chan error, len(moveQueues))
	for n, name := range moveQueues {
		q, err := b.OpenQueue(ctx, name)
		if err != nil {
			return err
		}
		go func() {
			for {
				moved, err := q.Move(ctx, moveQueues[1-n], 1+rand.IntN(20))
				if err != nil {
					failed <- err
					return
				}
				if moved > 0 {
					fmt.Println("moved", moved)
				}
			}
		}()
	}
	return <-failed
}

// killMover lets a process move messages for a while and kills it. It returns the number of
// moves it printed.
func killMover(ctx context.Context, dir string, after time.Duration) (heard int, err error) {
	cmd := other(ctx, "moves", dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if heard++; heard == 1 {
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Wait() // it was killed; a failure shows as no moves
	return heard, nil
}

// idsIn returns the ids of all messages in the queues, in order.
func idsIn(t *testing.T, dir string) (ids []string) {
	t.Helper()
	b, err := Open(t.Context(), dir, &Options{small: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, name := range moveQueues {
		q, err := b.OpenQueue(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		all, stats, err := peekAll(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if stats.Ready != len(all) {
			t.Errorf("%s: %d messages are there, and stats say %+v", name, len(all), stats)
		}
		for _, p := range all {
			ids = append(ids, p.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestKillingTheProcessLosesAndDoublesNothingThatMoves(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(t.Context(), dir, &Options{small: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range moveQueues {
		q, err := b.OpenQueue(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Send(t.Context(), make([]driver.Outgoing, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	want := idsIn(t, dir)
	kills, moves := max(volume.Count(t, 25, 1000)/5, 1), 0
	for n := range kills {
		heard, err := killMover(t.Context(), dir, time.Duration(10+rand.IntN(100))*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if heard == 0 {
			t.Fatal("the process moved nothing")
		}
		moves += heard
		if got := idsIn(t, dir); !slices.Equal(got, want) {
			t.Fatalf("after kill %d: %d messages are there, %d of them different ones; want %d",
				n+1, len(got), len(slices.Compact(slices.Clone(got))), len(want))
		}
	}
	t.Logf("%d processes were killed after %d moves", kills, moves)
}
