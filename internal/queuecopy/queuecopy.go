// Package queuecopy moves the messages of one queue to another, which may be of another backend.
//
// A message is sent to the destination first and then removed from the source, so that a copy
// that breaks off loses nothing and can be started again. What was sent and is still at the source is
// sent again then; a dedup key makes it the same message, for as long as the destination
// remembers keys.
package queuecopy

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

const (
	// visibility is how long a batch may take to arrive. A batch that takes longer is sent
	// again, as after a crash.
	visibility = time.Minute
	// patience is how long sent messages are removed, and others returned, after ctx has ended.
	patience = 5 * time.Second
	// pause is how long a copy waits for the next message at a time.
	pause    = time.Second
	maxBatch = 100
	maxBytes = 1 << 20
)

// Options say how a copy ends, and who is told of it.
type Options struct {
	// Follow waits for further messages until the context ends, which is then not an error.
	Follow bool
	// Moved is called after each batch with the number of messages in it. Nil means no call.
	Moved func(n int)
}

// A Result says what a copy did.
type Result struct {
	// Moved is how many messages moved, and Early how many of them before they were due.
	Moved, Early int
	// Left is what the source has afterwards: messages in flight and dead ones are not moved,
	// nor delayed ones between backends that cannot do that.
	Left driver.Stats
}

// Run moves the ready messages of from to the tail of to, in the order of their deliveries, and
// then the delayed ones, which stay delayed. A message gets another id, and has no deliveries
// and the time to live of its new queue. What the destination refuses goes back to its place
// uncounted, and ends the copy with an error that names the message; to start again is safe.
// Codes: ErrUnsupported (from has strict groups and to has not; from belongs to a daemon), and
// those of the queues.
func Run(ctx context.Context, from, to driver.Queue, options Options) (Result, error) {
	t := &copying{from: from, to: to, target: to.Traits(), source: from.Traits(), options: options}
	if t.source.StrictGroups && !t.target.StrictGroups {
		return t.result, refusal("the source delivers groups in strict order, and the destination would not; configure it with strict groups first")
	}
	err := t.run(ctx)
	if options.Follow && ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		err = nil
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	left, failed := from.Stats(after)
	t.result.Left = left
	return t.result, errors.Join(err, failed)
}

type copying struct {
	from, to       driver.Queue
	source, target driver.Traits
	options        Options
	result         Result
	first          string // id of the first message that was sent
}

func (t *copying) run(ctx context.Context) error {
	for {
		n, err := t.moveReady(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		moved, err := t.moveDelayed(ctx)
		if err != nil || moved == 0 && !t.options.Follow {
			return err
		}
	}
}

// moveReady moves a batch, and returns how many messages it received.
func (t *copying) moveReady(ctx context.Context) (int, error) {
	request := driver.ReceiveRequest{Max: min(maxBatch, t.source.MaxBatch, t.target.MaxBatch), MaxBytes: maxBytes, Visibility: min(visibility, t.source.MaxVisibility)}
	if t.options.Follow {
		request.Wait = pause
	}
	deliveries, err := t.from.Receive(ctx, request)
	if err != nil || len(deliveries) == 0 {
		return 0, err
	}
	messages := make([]driver.Outgoing, len(deliveries))
	for i := range deliveries {
		messages[i] = t.outgoing(&deliveries[i].Message, time.Time{})
	}
	var sent []driver.Receipt
	var refused []driver.Delivery
	failed := t.check(deliveries)
	if failed == nil {
		failed = t.send(ctx, messages)
	}
	for i, d := range deliveries {
		if failure := driver.At(failed, i); failure != nil {
			refused = append(refused, d)
		} else {
			sent = append(sent, d.Receipt)
		}
	}
	// What was sent is removed even if ctx has ended.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var errs []error
	if len(sent) > 0 {
		// A receipt that has expired belongs to a message that is delivered and moved again.
		if err := t.from.Ack(after, sent); err != nil && !errors.Is(err, driver.ErrReceiptExpired) {
			errs = append(errs, fmt.Errorf("copy: remove what was sent: %w", err))
		}
		t.moved(len(sent))
	}
	if len(refused) > 0 {
		errs = append(errs, fmt.Errorf("copy: message %s: %w", refused[0].ID, firstOf(failed)), t.giveBack(after, refused))
	}
	return len(deliveries), errors.Join(errs...)
}

// giveBack returns deliveries to their places, uncounted where the source can do that.
func (t *copying) giveBack(ctx context.Context, deliveries []driver.Delivery) error {
	if t.source.Release {
		nacks := make([]driver.Nack, len(deliveries))
		for i, d := range deliveries {
			nacks[i] = driver.Nack{Receipt: d.Receipt, Mode: driver.NackRelease}
		}
		return t.from.Nack(ctx, nacks)
	}
	extensions := make([]driver.Extension, len(deliveries))
	for i, d := range deliveries {
		extensions[i] = driver.Extension{Receipt: d.Receipt}
	}
	_, err := t.from.Extend(ctx, extensions)
	return err
}

// moveDelayed moves delayed messages with their due times, as far as the backends can, and
// returns how many.
func (t *copying) moveDelayed(ctx context.Context) (int, error) {
	if !t.source.Peek || !t.source.Edit || !t.target.DeliverAt {
		return 0, nil
	}
	moved := 0
	for m, err := range t.from.Peek(ctx, driver.Query{States: []driver.State{driver.StateDelayed}, Limit: maxBatch}) {
		if err != nil {
			return moved, err
		}
		done, err := t.moveEarly(ctx, &m)
		if err != nil {
			return moved, fmt.Errorf("copy: message %s: %w", m.ID, err)
		}
		if done {
			moved++
			t.result.Early++
			t.moved(1)
		}
	}
	return moved, nil
}

// moveEarly moves one message before it is due. If it left the source meanwhile, it is withdrawn
// from the destination.
func (t *copying) moveEarly(ctx context.Context, m *driver.Peeked) (bool, error) {
	if err := t.checkMessage(&m.Message); err != nil {
		return false, err
	}
	id, err := t.sendEarly(ctx, m)
	if err != nil {
		return false, err
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, err = t.from.Edit(after, m.ID, driver.Edit{Remove: true})
	if !errors.Is(err, driver.ErrNotFound) && !errors.Is(err, driver.ErrConflict) {
		return err == nil, err
	}
	if t.canWithdraw() {
		_, err = t.to.Edit(after, id, driver.Edit{Remove: true})
		if !errors.Is(err, driver.ErrNotFound) && !errors.Is(err, driver.ErrConflict) {
			return false, err
		}
	}
	return false, nil
}

func (t *copying) canWithdraw() bool { return t.target.Edit && t.target.Peek }

// sendEarly returns the id of a delayed message at the destination. A key that is known there
// may be that of a message that was withdrawn: then it is sent without one, because twice is
// better than never.
func (t *copying) sendEarly(ctx context.Context, m *driver.Peeked) (string, error) {
	message := t.outgoing(&m.Message, m.DueAt)
	sent, err := t.to.Send(ctx, []driver.Outgoing{message})
	if err != nil {
		return "", firstOf(err)
	}
	if sent[0].Duplicate && t.canWithdraw() {
		for _, err := range t.to.Peek(ctx, driver.Query{ID: sent[0].ID}) {
			return sent[0].ID, err
		}
		message.DedupKey = ""
		if sent, err = t.to.Send(ctx, []driver.Outgoing{message}); err != nil {
			return "", firstOf(err)
		}
	}
	t.remember(sent)
	return sent[0].ID, nil
}

func (t *copying) moved(n int) {
	t.result.Moved += n
	if t.options.Moved != nil && n > 0 {
		t.options.Moved(n)
	}
}

// outgoing returns the message to send; due is zero for one that is ready.
func (t *copying) outgoing(m *driver.Message, due time.Time) driver.Outgoing {
	message := driver.Outgoing{
		Body: m.Body, Attributes: m.Attributes, Group: m.Group, ReplyTo: m.ReplyTo, CorrelationID: m.CorrelationID, Priority: m.Priority,
		DeliverAt: due,
	}
	if t.target.DedupWindow > 0 {
		// The body, because a message can get another one and keep its id (Outgoing.Replace). Not
		// the due time, which may differ by a millisecond when the source is opened again.
		h := fnv.New64a()
		_, _ = h.Write(m.Body) // cannot fail
		message.DedupKey = fmt.Sprintf("%s-%x", m.ID, h.Sum64())
		if !due.IsZero() {
			message.DedupKey += "-early" // it may be withdrawn, and come back as a ready one
		}
	}
	return message
}

// send sends messages to the destination.
func (t *copying) send(ctx context.Context, messages []driver.Outgoing) error {
	sent, err := t.to.Send(ctx, messages)
	t.remember(sent)
	return err
}

// remember keeps the id of the first message that was sent.
func (t *copying) remember(sent []driver.Sent) {
	if t.first == "" && len(sent) > 0 {
		t.first = sent[0].ID
	}
}

func (t *copying) check(deliveries []driver.Delivery) error {
	for i := range deliveries {
		if err := t.checkMessage(&deliveries[i].Message); err != nil {
			return err
		}
	}
	return nil
}

// checkMessage refuses a message that only its daemon can vouch for, and one that this copy
// has sent: then source and destination are one queue under two names.
func (t *copying) checkMessage(m *driver.Message) error {
	_, sealed := m.Attributes[oap.AttributeSeal] // in backends that keep no seals
	switch {
	case sealed || len(m.Seal) > 0:
		return refusal("the source belongs to mailboxd, which has sealed its messages; copy them through the daemon")
	case m.ID == t.first:
		return refusal("source and destination are the same queue")
	}
	return nil
}

func refusal(detail string) error {
	return &driver.Error{Code: driver.ErrUnsupported, Op: "copy", Detail: detail}
}

// firstOf returns the first error of a batch.
func firstOf(err error) error {
	if batch, ok := errors.AsType[*driver.BatchError](err); ok {
		for _, err := range batch.Errs {
			if err != nil {
				return err
			}
		}
	}
	return err
}
