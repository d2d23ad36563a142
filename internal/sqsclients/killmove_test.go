package sqsclients_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// task returns the only move task of a source.
func (d *daemon) task(source string) types.ListMessageMoveTasksResultEntry {
	d.t.Helper()
	out, err := d.client(3).ListMessageMoveTasks(d.t.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String(arn(source))})
	if err != nil || len(out.Results) != 1 {
		d.t.Fatalf("tasks: %+v, %v", out, err)
	}
	return out.Results[0]
}

// An accepted move task completes however often the daemon is killed, and resumes as soon
// as the daemon is back. It moves the messages that existed when it began, each once, and
// reports their number.
func TestMoveTaskResumesAfterKills(t *testing.T) {
	t.Parallel()
	d := start(t)
	const messages, late, rate = 800, 30, 100 // a step a second
	source := d.create("dead", nil)
	target := d.create("home", map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":"%s","maxReceiveCount":9}`, arn("dead"))})
	d.fill(source, 0, messages, 0)
	if _, err := d.client(3).StartMessageMoveTask(t.Context(), &sqs.StartMessageMoveTaskInput{
		SourceArn: aws.String(arn("dead")), DestinationArn: aws.String(arn("home")), MaxNumberOfMessagesPerSecond: aws.Int32(rate),
	}); err != nil {
		t.Fatal(err)
	}
	d.fill(source, messages, messages+late, 0)
	// After one more step the daemon has stored that these came, and after two its progress.
	for kill, steps := range []int{2, 1} {
		at := d.waiting(target)
		proctest.Eventually(t, time.Minute, "moving", func() bool { return d.waiting(target) >= min(at+steps*rate, messages) })
		if status := *d.task("dead").Status; status != "RUNNING" {
			t.Errorf("the task is %s before kill %d: the test shows nothing", status, kill)
		}
		d.Kill()
		d.launch()
		// The task goes on during the count, source first, so the sum may only be larger.
		if a, b := d.waiting(source), d.waiting(target); a+b < messages+late {
			t.Errorf("%d and %d of %d messages are there", a, b, messages+late)
		}
	}
	proctest.Eventually(t, time.Minute, "completed", func() bool { return *d.task("dead").Status == "COMPLETED" })
	task := d.task("dead")
	if task.ApproximateNumberOfMessagesMoved != messages || *task.ApproximateNumberOfMessagesToMove != messages {
		t.Errorf("the task says that %d of %d have moved, want all of %d", task.ApproximateNumberOfMessagesMoved, *task.ApproximateNumberOfMessagesToMove, messages)
	}
	d.expect(target, 0, messages)
	d.expect(source, messages, messages+late)
}

// expect empties a queue, and checks that it has the messages that fill sent, each once.
func (d *daemon) expect(queue *string, from, to int) {
	d.t.Helper()
	var got, want []int
	for d.waiting(queue) > 0 {
		for _, m := range receiveAndDelete(d.t, d.client(3), queue) {
			n, _ := strconv.Atoi(*m.Body) // a number of ours
			got = append(got, n)
		}
	}
	for n := from; n < to; n++ {
		want = append(want, n)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		d.t.Errorf("%s has %d messages, want %d to %d, each once", *queue, len(got), from, to-1)
	}
}
