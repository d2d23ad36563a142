package rpcapi

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// PutSchedule stores a schedule.
func (s *service) PutSchedule(ctx context.Context, r *mailboxv1.PutScheduleRequest) (*mailboxv1.PutScheduleResponse, error) {
	given := r.GetSchedule()
	status, err := callOf(ctx).caller.PutSchedule(ctx, r.GetTopic(), schedule.Schedule{
		Name: given.GetName(), Cron: given.GetCron(), Every: duration(given.GetEveryMs()), Zone: given.GetZone(), Body: given.GetPayload(), Attributes: given.GetAttrs(),
		CatchUp: schedule.CatchUp(given.GetCatchUp()), Paused: given.GetPaused(),
	})
	return &mailboxv1.PutScheduleResponse{Status: wireSchedule(&status)}, err
}

// GetSchedule returns a schedule.
func (s *service) GetSchedule(ctx context.Context, r *mailboxv1.GetScheduleRequest) (*mailboxv1.GetScheduleResponse, error) {
	status, err := callOf(ctx).caller.Schedule(ctx, r.GetTopic(), r.GetName())
	return &mailboxv1.GetScheduleResponse{Status: wireSchedule(&status)}, err
}

// PauseSchedule stops a schedule.
func (s *service) PauseSchedule(ctx context.Context, r *mailboxv1.PauseScheduleRequest) (*mailboxv1.PauseScheduleResponse, error) {
	status, err := callOf(ctx).caller.PauseSchedule(ctx, r.GetTopic(), r.GetName())
	return &mailboxv1.PauseScheduleResponse{Status: wireSchedule(&status)}, err
}

// ResumeSchedule starts a paused schedule.
func (s *service) ResumeSchedule(ctx context.Context, r *mailboxv1.ResumeScheduleRequest) (*mailboxv1.ResumeScheduleResponse, error) {
	status, err := callOf(ctx).caller.ResumeSchedule(ctx, r.GetTopic(), r.GetName())
	return &mailboxv1.ResumeScheduleResponse{Status: wireSchedule(&status)}, err
}

// RunSchedule sends the message of a schedule now.
func (s *service) RunSchedule(ctx context.Context, r *mailboxv1.RunScheduleRequest) (*mailboxv1.RunScheduleResponse, error) {
	run, err := callOf(ctx).caller.RunSchedule(ctx, r.GetTopic(), r.GetName())
	return &mailboxv1.RunScheduleResponse{Run: wireRun(run, "")}, err
}

// DeleteSchedule removes a schedule.
func (s *service) DeleteSchedule(ctx context.Context, r *mailboxv1.DeleteScheduleRequest) (*mailboxv1.DeleteScheduleResponse, error) {
	return &mailboxv1.DeleteScheduleResponse{}, callOf(ctx).caller.RemoveSchedule(ctx, r.GetTopic(), r.GetName())
}

// schedulesChunk is how many schedules a part of a list has; each has less than a kilobyte.
const schedulesChunk = 64

// Schedules lists the schedules of a queue.
func (s *service) Schedules(ctx context.Context, r *mailboxv1.SchedulesRequest, stream *connect.ServerStream[mailboxv1.SchedulesResponse]) error {
	all, err := callOf(ctx).caller.ScheduleList(ctx, r.GetTopic())
	if err != nil {
		return err
	}
	for len(all) > 0 {
		n := min(len(all), schedulesChunk)
		chunk := make([]*mailboxv1.ScheduleStatus, n)
		for i := range chunk {
			chunk[i] = wireSummary(&all[i])
		}
		if err := stream.Send(&mailboxv1.SchedulesResponse{Schedules: chunk}); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// wireSummary returns a schedule in a list.
func wireSummary(s *schedule.Status) *mailboxv1.ScheduleStatus {
	summary := wireSchedule(&broker.ScheduleStatus{Status: *s})
	summary.Runs = summary.GetRuns()[max(0, len(s.Runs)-1):]
	if !s.Next.IsZero() {
		summary.Upcoming = []string{s.Next.Format(time.RFC3339Nano)}
	}
	if s.Err != nil {
		summary.Schedule = &mailboxv1.Schedule{Name: s.Schedule.Name}
		summary.Error = "it cannot be read here; remove it, or use the version that stored it"
	}
	return summary
}

func wireSchedule(s *broker.ScheduleStatus) *mailboxv1.ScheduleStatus {
	catchUp := s.Schedule.CatchUp
	if catchUp == "" {
		catchUp = schedule.CatchUpOne
	}
	wire := &mailboxv1.ScheduleStatus{
		Schedule: &mailboxv1.Schedule{
			Name: s.Schedule.Name, Cron: s.Schedule.Cron, EveryMs: milliseconds(s.Schedule.Every), Zone: s.Schedule.Zone,
			Payload: s.Schedule.Body, Attrs: s.Schedule.Attributes, CatchUp: string(catchUp), Paused: s.Schedule.Paused,
			CreatedAt: timestamp(s.Schedule.Created),
		},
		Through: timestamp(s.Through),
	}
	for _, at := range s.Upcoming {
		wire.Upcoming = append(wire.Upcoming, at.Format(time.RFC3339Nano))
	}
	for i, run := range s.Runs {
		outcome := ""
		if i < len(s.Outcomes) {
			outcome = s.Outcomes[i]
		}
		wire.Runs = append(wire.Runs, wireRun(run, outcome))
	}
	return wire
}

func wireRun(run driver.Run, outcome string) *mailboxv1.ScheduleRun {
	return &mailboxv1.ScheduleRun{DueAt: timestamp(run.Due), SentAt: timestamp(run.At), MsgId: run.MessageID, Outcome: outcome}
}
