package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The whole story, to the millisecond: in virtual time a second is exact.
const story = `
A send wakes a receiver that waits
 0.000s  ada     waits for work, for up to 5 s
 0.500s  waiter  sends an espresso for table 4
 0.500s  ada     has it, delivery 1, and makes the espresso
 0.500s  ada     acks: the message is removed

A worker crashes, and its message comes back
 0.500s  ada     takes the flat white for 1s, and faints
 0.500s  ben     waits; while ada's visibility lasts, he gets nothing
 1.500s  ben     gets the flat white, delivery 2, now that her time is over
 1.500s  ada     comes to and acks: refused, receipt expired
 1.500s  ben     acks

Work fails, and is tried again with backoff
 1.500s  ben     delivery 1 of the matcha fails: out of oat milk; nacks for 500ms
 2.000s  ben     delivery 2 of the matcha fails: out of oat milk; nacks for 1s
 3.000s  ben     delivery 3 of the matcha fails: out of oat milk; nacks for 1.5s
 3.000s  queue   three deliveries are the limit: it is a dead letter now
 3.000s  queue   matcha: reason max_attempts, deliveries 3, last error "out of oat milk"

A dead letter gets a second chance
 3.000s  boss    buys oat milk and redrives 1 dead letter
 3.000s  ben     makes the matcha, delivery 1, after all, and acks
 3.000s  queue   ready 0, delayed 0, in flight 0, dead 0: every order was served once
`

func TestTourTellsTheStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told strings.Builder
		if err := tour(t.Context(), &narrator{start: time.Now(), out: &told}); err != nil {
			t.Fatal(err)
		}
		if told.String() != story {
			t.Errorf("the tour told\n%s\nwant\n%s", told.String(), story)
		}
	})
}

func TestTourStopsWhenInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := tour(ctx, &narrator{start: start, out: io.Discard})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 700*time.Millisecond {
			t.Errorf("it ended after %v with %v", time.Since(start), err)
		}
	})
}

func TestTourPaintsOnlyTerminals(t *testing.T) {
	var told strings.Builder
	n := &narrator{start: time.Now(), out: &told, colour: true}
	n.chapter("Title")
	n.say("ada", "speaks")
	if painted := told.String(); strings.Count(painted, "\x1b[0m") != 3 {
		t.Errorf("title, time and name should be painted: %q", painted)
	}
}
