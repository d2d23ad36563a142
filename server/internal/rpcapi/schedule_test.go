package rpcapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/capability"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
)

// runSchedules runs the schedules of a daemon until the function that it returns is called.
func (d *daemon) runSchedules() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.broker.RunSchedules(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func TestSchedulesAreManagedOverEveryProtocol(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		defer d.runSchedules()()
		ctx, rpc := t.Context(), d.rpc(d.mint(t, ""), protocol)
		if _, err := rpc.Configure(ctx, &mailboxv1.ConfigureRequest{Topic: "jobs", Config: &mailboxv1.TopicConfig{}}); err != nil {
			t.Fatal(err)
		}
		put, err := rpc.PutSchedule(ctx, &mailboxv1.PutScheduleRequest{Topic: "jobs", Schedule: &mailboxv1.Schedule{
			Name: "often", EveryMs: 60_000, Payload: []byte("body"), Attrs: map[string]string{"colour": "red"}, CatchUp: "all",
		}})
		if err != nil || len(put.GetStatus().GetUpcoming()) != 5 {
			t.Fatalf("put: %v, %v", put, err)
		}
		<-time.After(2 * time.Minute)
		synctest.Wait()
		got, err := rpc.Recv(ctx, &mailboxv1.RecvRequest{Topic: "jobs"})
		if err != nil || len(got.GetMessages()) != 2 || string(got.GetMessages()[0].GetPayload()) != "body" || got.GetMessages()[0].GetEnvelope().GetAttrs()["colour"] != "red" {
			t.Errorf("received %v, %v", got, err)
		}
		paused, err := rpc.PauseSchedule(ctx, &mailboxv1.PauseScheduleRequest{Topic: "jobs", Name: "often"})
		if err != nil || !paused.GetStatus().GetSchedule().GetPaused() || len(paused.GetStatus().GetUpcoming()) != 0 {
			t.Errorf("pause: %v, %v", paused, err)
		}
		run, err := rpc.RunSchedule(ctx, &mailboxv1.RunScheduleRequest{Topic: "jobs", Name: "often"})
		if err != nil || run.GetRun().GetMsgId() == "" || run.GetRun().GetDueAt() != nil || run.GetRun().GetSentAt() == nil {
			t.Errorf("run: %v, %v", run, err)
		}
		resumed, err := rpc.ResumeSchedule(ctx, &mailboxv1.ResumeScheduleRequest{Topic: "jobs", Name: "often"})
		if err != nil || resumed.GetStatus().GetSchedule().GetPaused() {
			t.Errorf("resume: %v, %v", resumed, err)
		}
		found, err := rpc.GetSchedule(ctx, &mailboxv1.GetScheduleRequest{Topic: "jobs", Name: "often"})
		status := found.GetStatus()
		if err != nil || len(status.GetRuns()) != 3 || status.GetRuns()[0].GetOutcome() != "delivered" || status.GetRuns()[0].GetDueAt() == nil ||
			status.GetSchedule().GetEveryMs() != 60_000 || string(status.GetSchedule().GetPayload()) != "body" || status.GetSchedule().GetCatchUp() != "all" || status.GetThrough() == nil {
			t.Errorf("get: %v, %v", found, err)
		}
		stream, err := rpc.Schedules(ctx, &mailboxv1.SchedulesRequest{Topic: "jobs"})
		if err != nil || !stream.Receive() {
			t.Fatalf("list: %v", err)
		}
		if list := stream.Msg().GetSchedules(); len(list) != 1 || list[0].GetSchedule().GetName() != "often" || len(list[0].GetRuns()) != 1 || len(list[0].GetUpcoming()) != 1 || list[0].GetSchedule().GetPayload() != nil {
			t.Errorf("list: %v", list)
		}
		_ = stream.Close()
		if _, err := rpc.DeleteSchedule(ctx, &mailboxv1.DeleteScheduleRequest{Topic: "jobs", Name: "often"}); err != nil {
			t.Fatal(err)
		}
		_, err = rpc.DeleteSchedule(ctx, &mailboxv1.DeleteScheduleRequest{Topic: "jobs", Name: "often"})
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("a second removal: %v", err)
		}
	})
}

func TestWrongSchedulesAreRefusedOverGRPC(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		ctx, rpc := t.Context(), d.rpc(d.mint(t, ""), connect.WithGRPC())
		if _, err := rpc.Configure(ctx, &mailboxv1.ConfigureRequest{Topic: "jobs", Config: &mailboxv1.TopicConfig{}}); err != nil {
			t.Fatal(err)
		}
		put := func(queue string, s *mailboxv1.Schedule) error {
			_, err := rpc.PutSchedule(ctx, &mailboxv1.PutScheduleRequest{Topic: queue, Schedule: s})
			return err
		}
		for field, s := range map[string]*mailboxv1.Schedule{
			"cron":     {Name: "n", Cron: "61 * * * *"},
			"zone":     {Name: "n", Cron: "@daily", Zone: "Moon/Sea"},
			"every_ms": {Name: "n", EveryMs: nan()},
			"name":     {Name: strings.Repeat("n", 129), EveryMs: 60_000},
			"payload":  {Name: "n", EveryMs: 60_000, Payload: make([]byte, 64<<10+1)},
			"catch_up": {Name: "n", EveryMs: 60_000, CatchUp: "some"},
		} {
			err := put("jobs", s)
			e, _ := errors.AsType[*connect.Error](err)
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(e.Message(), field) {
				t.Errorf("a wrong %s: %v", field, err)
			}
		}
		if err := put("jobs", nil); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("no schedule: %v", err)
		}
		good := &mailboxv1.Schedule{Name: "n", EveryMs: 60_000}
		if err := put("unknown", good); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("an unknown queue: %v", err)
		}
		if err := put("jobs", good); err != nil {
			t.Fatal(err)
		}
		admin := d.rpc(d.mint(t, "", capability.Operations(capability.OpAdmin)), connect.WithGRPC())
		_, err := admin.PutSchedule(ctx, &mailboxv1.PutScheduleRequest{Topic: "jobs", Schedule: good})
		if connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("put without send: %v", err)
		}
		send := d.rpc(d.mint(t, "", capability.Operations(capability.OpSend)), connect.WithGRPC())
		for name, call := range map[string]func() error{
			"put": func() error {
				_, err := send.PutSchedule(ctx, &mailboxv1.PutScheduleRequest{Topic: "jobs", Schedule: good})
				return err
			},
			"get": func() error {
				_, err := send.GetSchedule(ctx, &mailboxv1.GetScheduleRequest{Topic: "jobs", Name: "n"})
				return err
			},
			"pause": func() error {
				_, err := send.PauseSchedule(ctx, &mailboxv1.PauseScheduleRequest{Topic: "jobs", Name: "n"})
				return err
			},
			"resume": func() error {
				_, err := send.ResumeSchedule(ctx, &mailboxv1.ResumeScheduleRequest{Topic: "jobs", Name: "n"})
				return err
			},
			"run": func() error {
				_, err := send.RunSchedule(ctx, &mailboxv1.RunScheduleRequest{Topic: "jobs", Name: "n"})
				return err
			},
			"delete": func() error {
				_, err := send.DeleteSchedule(ctx, &mailboxv1.DeleteScheduleRequest{Topic: "jobs", Name: "n"})
				return err
			},
			"list": func() error {
				stream, err := send.Schedules(ctx, &mailboxv1.SchedulesRequest{Topic: "jobs"})
				if err == nil {
					stream.Receive()
					err = stream.Err()
					_ = stream.Close()
				}
				return err
			},
		} {
			if err := call(); connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("%s without admin: %v", name, err)
			}
		}
	})
}
