package diskbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A callStep is how far a call has come, as its client and its worker know.
type callStep int

const (
	callBegan     callStep = iota // its slot and its request are being written
	callSent                      // both are confirmed
	callAnswering                 // the answer and the ack are being written
	callAnswered                  // both are confirmed, or the client has read the answer
	callCancelling
	callCancelled
	callDeleting
	callDeleted
)

// A callImage is a disk after a power cut, and how far each call was then.
type callImage struct {
	mem   *vfs.MemFS
	steps map[string]callStep
}

// callCuts takes images while calls are made.
type callCuts struct {
	mu     sync.Mutex // guards the fields below
	disk   *storetest.Disk
	rng    *rand.Rand
	steps  map[string]callStep
	images []callImage
}

func newCallCuts(seed uint64) *callCuts {
	return &callCuts{disk: storetest.NewDisk(), rng: rand.New(rand.NewPCG(seed, 1)), steps: make(map[string]callStep)}
}

func (c *callCuts) cut(storetest.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	image := callImage{mem: c.disk.Image(c.rng), steps: make(map[string]callStep, len(c.steps))}
	for id, step := range c.steps {
		image.steps[id] = step
	}
	c.images = append(c.images, image)
	return nil
}

// note records that a call has come to a step.
func (c *callCuts) note(id string, step callStep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps[id] = max(c.steps[id], step)
}

// callAnswer is the answer to a call. Every other one is too large to stay in memory.
func callAnswer(id string) driver.Answer {
	if len(id)%2 == 0 {
		return driver.Answer{Body: []byte(strings.Repeat(id, 500))}
	}
	return driver.Answer{Body: []byte(id)}
}

// calls makes calls, one after the other: it sends requests, which it receives and answers
// itself while a client waits. Every fourth is cancelled instead, and every third answer is
// removed after it was read.
func (c *callCuts) calls(ctx context.Context, b *Backend, queue string, calls int) error {
	q, err := b.OpenQueue(ctx, queue)
	if err != nil {
		return err
	}
	slots := b.Replies()
	for n := range calls {
		id := fmt.Sprintf("%s %d", queue, n)
		c.note(id, callBegan)
		sending, _, err := slots.CreateWithSend(ctx, id, time.Hour)
		if err != nil {
			return err
		}
		if _, err := q.Send(sending, []driver.Outgoing{{ReplyTo: driver.SlotAddress(id), Body: []byte(id)}}); err != nil {
			return err
		}
		c.note(id, callSent)
		if n%4 == 3 {
			c.note(id, callCancelling)
			if err := slots.Cancel(ctx, id); err != nil {
				return err
			}
			c.note(id, callCancelled)
			continue
		}
		if err := c.answer(ctx, q, slots, id); err != nil {
			return fmt.Errorf("call %s: %w", id, err)
		}
		if n%3 == 2 {
			c.note(id, callDeleting)
			if err := slots.Delete(ctx, id); err != nil {
				return err
			}
			c.note(id, callDeleted)
		}
	}
	return nil
}

// answer receives requests until it has the one with this id, and answers it.
func (c *callCuts) answer(ctx context.Context, q driver.Queue, slots driver.LinkedReplyStore, id string) error {
	read := make(chan error, 1)
	go func() {
		slot, err := slots.Wait(ctx, id, time.Minute)
		if err == nil && string(slot.Answer.Body) != string(callAnswer(id).Body) {
			err = fmt.Errorf("the client of %s got %+v", id, slot)
		}
		if err == nil {
			c.note(id, callAnswered) // it has seen the answer, so no crash may take it back
		}
		read <- err
	}()
	for {
		got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Minute})
		if err != nil || len(got) == 0 {
			return fmt.Errorf("received %d: %w", len(got), err)
		}
		if string(got[0].Body) != id { // cancelled
			continue
		}
		c.note(id, callAnswering)
		acking, stored, err := slots.ResolveWithAck(ctx, id, callAnswer(id))
		if err != nil {
			return err
		}
		if err := errors.Join(q.Ack(acking, []driver.Receipt{got[0].Receipt}), stored()); err != nil {
			return err
		}
		c.note(id, callAnswered)
		return <-read
	}
}

// run makes calls on a disk, and takes images of it.
func (c *callCuts) run(t *testing.T, how Sync, clients, calls int) {
	t.Helper()
	b := openImage(t, c.disk.Mem())
	if err := b.Close(); err != nil { // its files are there
		t.Fatal(err)
	}
	c.disk.Before(c.cut)
	b, err := Open(t.Context(), "queues", &Options{fs: c.disk.FS(), small: true, Sync: how})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			if err := c.calls(t.Context(), b, fmt.Sprint("requests ", client), calls); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// callContent is what an image holds of each call.
type callContent struct {
	slots    map[string]driver.Slot
	requests map[string]bool
}

func readCalls(t *testing.T, image *callImage) *callContent {
	t.Helper()
	b := openImage(t, image.mem)
	defer b.Close()
	content := &callContent{slots: make(map[string]driver.Slot), requests: make(map[string]bool)}
	for id := range image.steps {
		slot, err := b.Replies().Get(t.Context(), id)
		if err == nil {
			content.slots[id] = slot
		} else if !errors.Is(err, driver.ErrNotFound) {
			t.Fatal(err)
		}
		if err == nil && slot.State == driver.SlotResolved {
			expectCode(t, b.Replies().Resolve(t.Context(), id, answerOf("another")), driver.ErrReplyAlreadySent)
		}
	}
	for name, err := range b.Queues(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for peeked, err := range openQueue(t, b, name).Peek(t.Context(), driver.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			content.requests[string(peeked.Body)] = true
		}
	}
	return content
}

// problems compares what an image holds with how far the calls were.
func (c *callContent) problems(steps map[string]callStep) (found []string) {
	for id, step := range steps {
		slot, requested := c.slots[id], c.requests[id]
		wrong := func(what string) {
			found = append(found, fmt.Sprintf("call %s, at step %d, %s: the slot is %q, its request is there: %v", id, step, what, slot.State, requested))
		}
		if slot.State == driver.SlotResolved && string(slot.Answer.Body) != string(callAnswer(id).Body) {
			wrong("has another answer")
		}
		switch {
		case step == callBegan && requested && slot.State != driver.SlotPending:
			wrong("has a request without a slot")
		case step == callBegan && slot.State == driver.SlotResolved,
			(step == callSent || step == callCancelling) && (slot.State != driver.SlotPending && slot.State != driver.SlotCancelled || !requested),
			step == callSent && slot.State != driver.SlotPending,
			step == callAnswering && slot.State != driver.SlotPending && slot.State != driver.SlotResolved,
			step == callCancelled && (slot.State != driver.SlotCancelled || !requested),
			step == callDeleting && slot.State != driver.SlotResolved && slot.State != "",
			step == callDeleted && slot.State != "":
			wrong("is in an impossible state")
		case step == callAnswering && slot.State == driver.SlotPending && !requested:
			wrong("was acked without its answer")
		case step == callAnswered && slot.State != driver.SlotResolved:
			wrong("has lost its answer")
		}
	}
	return found
}

// TestPowerCutLosesNoAnswer cuts the power before each operation of the disk while calls are made, on as many
// disks as it takes for the images that MAILBOX_VOLUME asks for.
// In every image a request that was sent has its slot, an answer that was confirmed or read is
// there and cannot be written again, and no request was acked without its answer.
func TestPowerCutLosesNoAnswer(t *testing.T) {
	volume.Repeats(t)
	images, calls := volume.Count(t, volume.Part(400, 4), 100_000), volume.Of(40)
	taken, disks := 0, 0
	for ; taken < images && !t.Failed(); disks++ {
		cuts := newCallCuts(uint64(1 + disks))
		cuts.run(t, SyncEach, 2, calls)
		for i := range cuts.images {
			image := &cuts.images[i]
			for _, problem := range readCalls(t, image).problems(image.steps) {
				t.Errorf("disk %d, image %d: %s", disks, i, problem)
			}
		}
		taken += len(cuts.images)
	}
	t.Logf("%d images of %d disks, with %d calls each", taken, disks, 2*calls)
}

// An image that breaks a promise to a call is noticed, one that keeps it is not.
func TestBrokenCallsAreNoticed(t *testing.T) {
	const id = "requests 0 1"
	pending := driver.Slot{ID: id, State: driver.SlotPending}
	cancelled := driver.Slot{ID: id, State: driver.SlotCancelled}
	resolved := driver.Slot{ID: id, State: driver.SlotResolved, Answer: callAnswer(id)}
	other := driver.Slot{ID: id, State: driver.SlotResolved, Answer: answerOf("another")}
	for _, test := range []struct {
		name      string
		step      callStep
		slot      driver.Slot
		requested bool
		broken    bool
	}{
		{"its request came first", callBegan, driver.Slot{}, true, true},
		{"sent", callSent, pending, true, false},
		{"slot lost", callSent, driver.Slot{}, true, true},
		{"request lost", callSent, pending, false, true},
		{"not answered yet", callAnswering, pending, true, false},
		{"acked first", callAnswering, pending, false, true},
		{"answered", callAnswered, resolved, false, false},
		{"answer lost", callAnswered, pending, true, true},
		{"answer changed", callAnswered, other, false, true},
		{"cancelled", callCancelled, cancelled, true, false},
		{"cancel lost", callCancelled, pending, true, true},
		{"deleted", callDeleted, driver.Slot{}, false, false},
		{"deleted slot back", callDeleted, resolved, false, true},
	} {
		image := callContent{slots: map[string]driver.Slot{id: test.slot}, requests: map[string]bool{id: test.requested}}
		if found := image.problems(map[string]callStep{id: test.step}); (len(found) > 0) != test.broken {
			t.Errorf("%s: found %q", test.name, found)
		}
	}
}

// A backend that confirms answers before they are synced is caught.
func TestPowerCutCatchesUnsyncedAnswers(t *testing.T) {
	cuts := newCallCuts(1)
	cuts.run(t, SyncNone, 2, 40)
	for i := range cuts.images {
		for _, problem := range readCalls(t, &cuts.images[i]).problems(cuts.images[i].steps) {
			if strings.Contains(problem, "has lost its answer") {
				t.Log("caught:", problem)
				return
			}
		}
	}
	t.Errorf("no answer was lost in %d images", len(cuts.images))
}
