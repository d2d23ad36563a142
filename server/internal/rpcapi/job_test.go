package rpcapi_test

import (
	"testing"

	"connectrpc.com/connect"

	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
)

// TestJobOverEveryProtocol is CON-2 over gRPC: a selection is redriven as a job that can be watched and stopped.
func TestJobOverEveryProtocol(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		token := d.mint(t, "")
		rpc := d.rpc(token, protocol)
		for _, key := range []string{"a", "b"} {
			_, err := rpc.Send(t.Context(), &mailboxv1.SendRequest{Topic: "orders", Messages: []*mailboxv1.Outgoing{{IdemKey: key, Payload: []byte(key)}}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := rpc.Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders"})
			if err != nil || len(got.GetMessages()) != 1 {
				t.Fatalf("got %v, %v", got, err)
			}
			if _, err := rpc.Bury(t.Context(), &mailboxv1.BuryRequest{Topic: "orders", Entries: []*mailboxv1.BuryEntry{{Delivery: &mailboxv1.DeliveryRef{Receipt: got.GetMessages()[0].GetReceipt()}, Reason: "fatal", Error: "x"}}}); err != nil {
				t.Fatal(err)
			}
		}
		priority := int32(0)
		started, err := rpc.StartJob(t.Context(), &mailboxv1.StartJobRequest{Spec: &mailboxv1.JobSpec{Topic: "orders", Action: "redrive", Text: []byte("b"), Priority: &priority}})
		if err != nil || started.GetJob().GetState() != "running" || started.GetJob().GetTotal() != 2 || started.GetJob().GetToken() != token.ID().String() {
			t.Fatalf("%v, %v", started, err)
		}
		id := started.GetJob().GetId()
		for {
			now, err := rpc.GetJob(t.Context(), &mailboxv1.GetJobRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			if j := now.GetJob(); j.GetState() != "running" {
				if j.GetState() != "done" || j.GetDone() != 1 || j.GetLooked() != 2 || !j.GetEnded().IsValid() {
					t.Errorf("%v", j)
				}
				break
			}
		}
		slow, err := rpc.StartJob(t.Context(), &mailboxv1.StartJobRequest{Spec: &mailboxv1.JobSpec{Topic: "orders", Action: "count", Until: started.GetJob().GetSpec().GetUntil()}})
		if err != nil {
			t.Fatal(err)
		}
		stopped, err := rpc.StopJob(t.Context(), &mailboxv1.StopJobRequest{Id: slow.GetJob().GetId()})
		if err != nil || stopped.GetJob().GetState() == "running" {
			t.Errorf("%v, %v", stopped, err)
		}
		stream, err := rpc.Jobs(t.Context(), &mailboxv1.JobsRequest{Topic: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		var jobs []*mailboxv1.Job
		for stream.Receive() {
			jobs = append(jobs, stream.Msg().GetJobs()...)
		}
		if err := stream.Err(); err != nil || len(jobs) != 2 || jobs[0].GetId() != id && jobs[1].GetId() != id {
			t.Errorf("%v, %v", jobs, err)
		}
		_, err = rpc.StartJob(t.Context(), &mailboxv1.StartJobRequest{})
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("an empty request: %v", err)
		}
		_, err = rpc.GetJob(t.Context(), &mailboxv1.GetJobRequest{Id: "x"})
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("an unknown job: %v", err)
		}
	})
}
