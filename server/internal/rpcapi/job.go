package rpcapi

import (
	"context"
	"strings"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// StartJob starts a job.
func (s *service) StartJob(ctx context.Context, r *mailboxv1.StartJobRequest) (*mailboxv1.StartJobResponse, error) {
	request, err := jobRequest(r.GetSpec())
	if err != nil {
		return nil, err
	}
	j, err := callOf(ctx).caller.StartJob(ctx, request)
	return &mailboxv1.StartJobResponse{Job: job(&j)}, err
}

// Jobs lists jobs.
func (s *service) Jobs(ctx context.Context, r *mailboxv1.JobsRequest, stream *connect.ServerStream[mailboxv1.JobsResponse]) error {
	jobs, err := callOf(ctx).caller.Jobs(ctx, r.GetTopic())
	if err != nil {
		return err
	}
	return inChunks(each(jobs), 0, job, func(chunk []*mailboxv1.Job) error {
		return stream.Send(&mailboxv1.JobsResponse{Jobs: chunk})
	})
}

// GetJob shows a job.
func (s *service) GetJob(ctx context.Context, r *mailboxv1.GetJobRequest) (*mailboxv1.GetJobResponse, error) {
	j, err := callOf(ctx).caller.Job(ctx, r.GetId())
	return &mailboxv1.GetJobResponse{Job: job(&j)}, err
}

// StopJob stops a job.
func (s *service) StopJob(ctx context.Context, r *mailboxv1.StopJobRequest) (*mailboxv1.StopJobResponse, error) {
	j, err := callOf(ctx).caller.StopJob(ctx, r.GetId())
	return &mailboxv1.StopJobResponse{Job: job(&j)}, err
}

func jobRequest(s *mailboxv1.JobSpec) (broker.JobRequest, error) {
	r := broker.JobRequest{Queue: s.GetTopic(), Action: broker.JobAction(s.GetAction()), Rate: int(s.GetRate()), Selection: broker.Selection{
		Query: driver.Query{ID: s.GetMsgId(), Attributes: s.GetAttrs(), OlderThan: duration(s.GetOlderThanMs()), Reason: driver.Reason(s.GetReason()), Limit: int(s.GetLimit())},
		Group: s.GetGroup(), Text: s.GetText(), Cause: s.GetCause(),
	}}
	if s != nil && s.Priority != nil {
		priority := int(s.GetPriority())
		r.Selection.Priority = &priority
	}
	if until := s.GetUntil(); until != nil {
		if !until.IsValid() {
			return r, schemaError("until", "is not a time")
		}
		r.Selection.Until = until.AsTime()
	}
	return r, nil
}

func job(j *broker.Job) *mailboxv1.Job {
	s := &j.Selection
	spec := &mailboxv1.JobSpec{
		Topic: j.Queue, Action: string(j.Action), Rate: int32(j.Rate), MsgId: s.ID, Attrs: s.Attributes, OlderThanMs: milliseconds(s.OlderThan), Reason: string(s.Reason),
		Group: s.Group, Text: s.Text, Cause: s.Cause, Until: timestamp(s.Until), Limit: int32(s.Limit),
	}
	if s.Priority != nil {
		priority := int32(*s.Priority)
		spec.Priority = &priority
	}
	return &mailboxv1.Job{
		Id: j.ID, Spec: spec, State: string(j.State), Why: strings.ToValidUTF8(j.Why, "\ufffd"), Total: int64(j.Total), Looked: int64(j.Looked), Selected: int64(j.Selected), Done: int64(j.Done), Failed: int64(j.Failed),
		Started: timestamp(j.Started), Ended: timestamp(j.Ended), Token: j.Token.String(),
	}
}
