package rpcapi

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// asWorker names the caller of a receive: as it calls itself, or else by the program that it uses.
func (c *call) asWorker() (err error) {
	name := c.worker
	if name == "" {
		name = broker.WorkerName(c.program)
	}
	c.caller, err = c.caller.Named(name, "grpc")
	return err
}

// Workers lists the receivers of a queue, or of all.
func (s *service) Workers(ctx context.Context, r *mailboxv1.WorkersRequest, stream *connect.ServerStream[mailboxv1.WorkersResponse]) error {
	workers, err := callOf(ctx).caller.Workers(ctx, r.GetTopic())
	if err != nil {
		return err
	}
	return inChunks(each(workers), 0, worker, func(chunk []*mailboxv1.Worker) error {
		return stream.Send(&mailboxv1.WorkersResponse{Workers: chunk})
	})
}

func each[E any](all []E) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func worker(w *broker.Worker) *mailboxv1.Worker {
	out := &mailboxv1.Worker{
		Topic: w.Queue, Name: w.Name, Protocol: w.Protocol, Address: w.AddressText(), Token: w.Token.String(), Since: timestamp(w.Since), Seen: timestamp(w.Seen),
		Waiting: int64(w.Waiting), InFlight: int64(w.InFlight), Acked: int64(w.Acked), Failed: int64(w.Failed), Expired: int64(w.Expired),
	}
	for _, held := range w.Held {
		out.Held = append(out.Held, &mailboxv1.HeldMessage{
			MsgId: held.ID, Attempt: int32(held.Attempt), TakenAt: timestamp(held.TakenAt), Until: timestamp(held.Until), Report: report(held.Progress),
		})
	}
	return out
}

// progressOf returns what a receiver reports with an extension; nil for nothing.
func progressOf(p *mailboxv1.Progress) *driver.Progress {
	if p == nil {
		return nil
	}
	progress := driver.Progress{Fraction: -1, Text: p.GetText()}
	if p.Fraction != nil {
		progress.Fraction = p.GetFraction()
	}
	return &progress
}

// report returns what a receiver has reported; nil for nothing.
func report(p *broker.Progress) *mailboxv1.ProgressReport {
	if p == nil {
		return nil
	}
	progress := &mailboxv1.Progress{Text: p.Text}
	if p.Fraction >= 0 {
		progress.Fraction = &p.Fraction
	}
	return &mailboxv1.ProgressReport{Progress: progress, At: timestamp(p.At)}
}
