package drivertest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/history"
	"github.com/mailboxmq/mailbox/internal/testing/queuemodel"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestModelKeepsItsPromisesUnderLoad(t *testing.T) {
	volume.Repeats(t)
	RunConcurrent(t, modelBackend(nil), Load{Messages: volume.Of(2_000)})
}

func TestModelKeepsItsPromisesThroughRestarts(t *testing.T) {
	b := modelBackend(nil)
	b.Restart = func(_ testing.TB, old driver.Opener, _ Crash) driver.Opener {
		old.(*modelOpener).restart()
		return old
	}
	RunConcurrent(t, b, Load{Messages: 1_000, Restarts: 5})
}

// restart forgets all leases, as a backend that does not store them may.
func (b *modelOpener) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		q.Mu.Lock()
		for _, msg := range q.Model.Waiting {
			if msg.Leased {
				msg.Leased = false
				msg.Deliveries--
			}
		}
		q.Mu.Unlock()
	}
}

// saboteurs each break a promise that only a history can show.
var saboteurs = []struct {
	name   string
	rule   string
	config driver.Config
	mutant
}{
	{"an ack takes another message with it", "SND-1", driver.Config{}, mutant{ack: func(q *queuemodel.Queue, receipts []driver.Receipt) error {
		err := q.Ack(context.Background(), receipts)
		q.Mu.Lock()
		defer q.Mu.Unlock()
		if len(q.Model.Waiting) > 100 {
			q.Model.Waiting = q.Model.Waiting[1:]
		}
		return err
	}}},
	{"an ack is a nack", "ACK-1", driver.Config{}, mutant{ack: func(q *queuemodel.Queue, receipts []driver.Receipt) error {
		nacks := make([]driver.Nack, len(receipts))
		for i, receipt := range receipts {
			nacks[i].Receipt = receipt
		}
		if queuemodel.At(q, func(time.Duration) bool { return q.Model.Nonce > 500 }) {
			return q.Ack(context.Background(), receipts) // otherwise the run would not end
		}
		return q.Nack(context.Background(), nacks)
	}}},
	{"a late ack succeeds", "VIS-2", driver.Config{}, mutant{ack: func(q *queuemodel.Queue, receipts []driver.Receipt) error {
		_ = q.Ack(context.Background(), receipts)
		return nil
	}}},
	{"two settlements win a race", "VIS-6", driver.Config{}, mutant{nack: func(q *queuemodel.Queue, nacks []driver.Nack) error {
		_ = q.Nack(context.Background(), nacks)
		return nil
	}}},
	{"leases are short", "VIS-1", driver.Config{}, mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		req.Visibility /= 2
		return q.Receive(context.Background(), req)
	}}},
	{"delays are short", "SND-2", driver.Config{}, mutant{send: func(q *queuemodel.Queue, msgs []driver.Outgoing) ([]driver.Sent, error) {
		msgs = slices.Clone(msgs)
		for i := range msgs {
			msgs[i].Delay /= 2
		}
		return q.Send(context.Background(), msgs)
	}}},
	{"keys are forgotten", "DUP-1", driver.Config{}, mutant{send: func(q *queuemodel.Queue, msgs []driver.Outgoing) ([]driver.Sent, error) {
		msgs = slices.Clone(msgs)
		for i := range msgs {
			msgs[i].DedupKey = ""
		}
		return q.Send(context.Background(), msgs)
	}}},
	{"bodies are cut", "SND-3", driver.Config{}, mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		deliveries, err := q.Receive(context.Background(), req)
		for i := range deliveries {
			deliveries[i].Body = deliveries[i].Body[1:]
		}
		return deliveries, err
	}}},
	{"counts stand still", "RCV-3", driver.Config{}, mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		deliveries, err := q.Receive(context.Background(), req)
		for i := range deliveries {
			deliveries[i].Deliveries = 1 + deliveries[i].Deliveries/3
		}
		return deliveries, err
	}}},
	{"a receive strands a message", "RCV-2", driver.Config{}, mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		deliveries, err := q.Receive(context.Background(), req)
		if len(deliveries) > 3 {
			deliveries = deliveries[:3]
		}
		return deliveries, err
	}}},
	{"the newest goes first", "ORD-1", driver.Config{}, mutant{send: func(q *queuemodel.Queue, msgs []driver.Outgoing) ([]driver.Sent, error) {
		sent, err := q.Send(context.Background(), msgs)
		q.Mu.Lock()
		defer q.Mu.Unlock()
		for _, msg := range q.Model.Waiting {
			if msg.Place < 1<<40 {
				msg.Place = 1<<50 - msg.Place
			}
		}
		return sent, err
	}}},
	{"groups are not held back", "ORD-4", driver.Config{StrictGroups: true}, mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		q.Mu.Lock()
		q.Model.Config.StrictGroups = false
		q.Mu.Unlock()
		return q.Receive(context.Background(), req)
	}}},
	{"one delivery too many is allowed", "DLQ-1", driver.Config{MaxDeliveries: 1}, mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		q.Mu.Lock()
		q.Model.Config.MaxDeliveries = 2
		q.Mu.Unlock()
		return q.Receive(context.Background(), req)
	}}},
}

func TestHistoriesShowEverySaboteur(t *testing.T) {
	volume.InFull(t)
	for _, test := range saboteurs {
		t.Run(test.name, func(t *testing.T) {
			b := modelBackend(func(q *queuemodel.Queue) driver.Queue {
				m := test.mutant
				m.Queue = q
				return &m
			})
			load := Load{Messages: 1_000, Config: test.config}.withDefaults(b)
			var crowd *crowd
			synctest.Test(t, func(t *testing.T) {
				crowd = newCrowd(t, b, load)
				crowd.run()
			})
			report := history.Check(crowd.recorder.History(), crowd.final, crowd.terms)
			if !slices.ContainsFunc(report.Violations, func(v history.Violation) bool { return v.Rule == test.rule }) {
				t.Errorf("seed %d: got %v, want a violation of %s", load.Seed, report.Err(), test.rule)
			}
		})
	}
}
