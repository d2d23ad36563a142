package rpcapi

import (
	"cmp"
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
)

// Redrive makes dead letters ready again.
func (s *service) Redrive(ctx context.Context, r *mailboxv1.RedriveRequest) (*mailboxv1.RedriveResponse, error) {
	ids := r.GetMsgIds()
	switch {
	case r.GetAll() && len(ids) > 0:
		return nil, schemaError("all", "and msg_ids exclude each other")
	case r.GetAll():
		ids = nil
	case ids == nil:
		ids = []string{} // no ids; nil would mean all
	}
	c := callOf(ctx)
	moved, err := c.caller.Redrive(ctx, r.GetTopic(), ids, int(r.GetLimit()))
	if err != nil && moved > 0 {
		return nil, c.faultAfter(err, moved)
	}
	return &mailboxv1.RedriveResponse{Moved: int64(moved)}, err
}

// Discard removes dead letters.
func (s *service) Discard(ctx context.Context, r *mailboxv1.DiscardRequest) (*mailboxv1.DiscardResponse, error) {
	removed, err := callOf(ctx).caller.Discard(ctx, r.GetTopic(), r.GetMsgIds())
	return &mailboxv1.DiscardResponse{Removed: int64(removed)}, err
}

// PurgeDead removes all dead letters.
func (s *service) PurgeDead(ctx context.Context, r *mailboxv1.PurgeDeadRequest) (*mailboxv1.PurgeDeadResponse, error) {
	removed, err := callOf(ctx).caller.PurgeDead(ctx, r.GetTopic())
	return &mailboxv1.PurgeDeadResponse{Removed: int64(removed)}, err
}

// Purge removes all messages but dead letters.
func (s *service) Purge(ctx context.Context, r *mailboxv1.PurgeRequest) (*mailboxv1.PurgeResponse, error) {
	removed, err := callOf(ctx).caller.Purge(ctx, r.GetTopic())
	return &mailboxv1.PurgeResponse{Removed: int64(removed)}, err
}

// Pause stops deliveries.
func (s *service) Pause(ctx context.Context, r *mailboxv1.PauseRequest) (*mailboxv1.PauseResponse, error) {
	return &mailboxv1.PauseResponse{}, callOf(ctx).caller.Pause(ctx, r.GetTopic())
}

// Resume ends a pause.
func (s *service) Resume(ctx context.Context, r *mailboxv1.ResumeRequest) (*mailboxv1.ResumeResponse, error) {
	return &mailboxv1.ResumeResponse{}, callOf(ctx).caller.Resume(ctx, r.GetTopic())
}

// Throttle throttles a group.
func (s *service) Throttle(ctx context.Context, r *mailboxv1.ThrottleRequest) (*mailboxv1.ThrottleResponse, error) {
	return &mailboxv1.ThrottleResponse{}, callOf(ctx).caller.Throttle(ctx, r.GetTopic(), r.GetGroup(), duration(r.GetWaitMs()))
}

// Edit changes a waiting message.
func (s *service) Edit(ctx context.Context, r *mailboxv1.EditRequest) (*mailboxv1.EditResponse, error) {
	edit := driver.Edit{Remove: r.GetRemove(), Ready: r.GetReady()}
	if at := r.GetDeliverAt(); at != nil {
		if edit.DeliverAt = at.AsTime(); !at.IsValid() || edit.DeliverAt.IsZero() {
			return nil, schemaError("deliver_at", "is not a time")
		}
	}
	if r.Priority != nil {
		edit.Prioritize, edit.Priority = true, int(r.GetPriority())
	}
	was, err := callOf(ctx).caller.Edit(ctx, r.GetTopic(), r.GetMsgId(), edit)
	return &mailboxv1.EditResponse{State: wireStates[was]}, err
}

// Traits returns the traits of a queue.
func (s *service) Traits(ctx context.Context, r *mailboxv1.TraitsRequest) (*mailboxv1.TraitsResponse, error) {
	c := callOf(ctx)
	promised, err := c.caller.Traits(ctx, r.GetTopic())
	if err != nil {
		return nil, err
	}
	promised.MaxBodyBytes = min(promised.MaxBodyBytes, c.maxBody)
	return traits(&promised), nil
}

// Topics lists the queues.
func (s *service) Topics(ctx context.Context, _ *mailboxv1.TopicsRequest, stream *connect.ServerStream[mailboxv1.TopicsResponse]) error {
	var chunk []string
	size := 0
	for name, err := range callOf(ctx).caller.Queues(ctx) {
		if err != nil {
			return err
		}
		chunk = append(chunk, name)
		if size += len(name); size >= chunkBytes {
			if err := stream.Send(&mailboxv1.TopicsResponse{Topics: chunk}); err != nil {
				return err
			}
			chunk, size = nil, 0
		}
	}
	if len(chunk) == 0 {
		return nil
	}
	return stream.Send(&mailboxv1.TopicsResponse{Topics: chunk})
}

// Describe returns the configuration of a queue.
func (s *service) Describe(ctx context.Context, r *mailboxv1.DescribeRequest) (*mailboxv1.DescribeResponse, error) {
	found, err := callOf(ctx).caller.Config(ctx, r.GetTopic())
	return &mailboxv1.DescribeResponse{Config: wireConfig(found)}, err
}

// Configure creates a queue or changes its configuration.
func (s *service) Configure(ctx context.Context, r *mailboxv1.ConfigureRequest) (*mailboxv1.ConfigureResponse, error) {
	wanted, err := config(r.GetConfig())
	if err != nil {
		return nil, err
	}
	caller := callOf(ctx).caller
	// Clients that do not know a setting leave it as it is.
	if now, err := caller.Config(ctx, r.GetTopic()); err == nil {
		given := cmp.Or(r.GetConfig(), &mailboxv1.TopicConfig{})
		if given.FairGroups == nil {
			wanted.FairGroups = now.FairGroups
		}
		if given.DropExpired == nil {
			wanted.DropExpired = now.DropExpired
		}
		if given.Annotation == nil {
			wanted.Annotation = now.Annotation
		}
	}
	return &mailboxv1.ConfigureResponse{}, caller.Configure(ctx, r.GetTopic(), wanted)
}

// Delete removes a queue.
func (s *service) Delete(ctx context.Context, r *mailboxv1.DeleteRequest) (*mailboxv1.DeleteResponse, error) {
	return &mailboxv1.DeleteResponse{}, callOf(ctx).caller.Delete(ctx, r.GetTopic())
}

// Ping reports whether the backend answers.
func (s *service) Ping(ctx context.Context, _ *mailboxv1.PingRequest) (*mailboxv1.PingResponse, error) {
	err := callOf(ctx).caller.Ping(ctx)
	if _, ours := errors.AsType[*driver.Error](err); err != nil && ctx.Err() == nil && !ours {
		err = &driver.Error{Code: driver.ErrUnavailable, Op: "ping", Err: err}
	}
	return &mailboxv1.PingResponse{}, err
}
