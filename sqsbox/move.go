package sqsbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	// moveVisibility hides messages while moveByHand moves them.
	moveVisibility = 2 * time.Minute
	// taskPoll is the pause between two requests for the state of a move task.
	taskPoll = time.Second
)

// Move moves messages to another queue: all of a dead-letter queue by a move task of
// SQS, which gives them new ids, and otherwise by hand, receiving, sending and
// deleting up to ten at once, which keeps their ids. A process that ends between send
// and delete leaves copies in both queues, unless the target is a FIFO queue.
//
// Cancelling ctx cancels a task that was started; SQS may still complete it.
func (h *handle) Move(ctx context.Context, to string, limit int) (moved int, err error) {
	if err := h.check(ctx, "move"); err != nil {
		return 0, err
	}
	moved, err = h.move(ctx, to, limit)
	return moved, driver.Annotate(err, h.name, "move")
}

func (h *handle) move(ctx context.Context, to string, limit int) (int, error) {
	if limit < 0 {
		return 0, moveError("limit", fmt.Sprintf("%d is negative; 0 means no limit", limit))
	}
	target := ""
	if to != "" {
		at, err := h.backend.find(ctx, to)
		if err != nil {
			return 0, err
		}
		if at.physical == h.physical {
			return 0, moveError("to", "is the queue itself")
		}
		attributes, err := h.backend.attributes(ctx, at.url)
		if err != nil {
			return 0, err
		}
		target = attributes["QueueArn"]
	}
	byTask := 0
	if limit == 0 {
		moved, done, err := h.moveByTask(ctx, target)
		if done {
			return moved, err
		}
		byTask = moved
	}
	byHand, err := h.moveByHand(ctx, to, limit)
	return byTask + byHand, err
}

func moveError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Field: field, Detail: detail}
}

// moveByTask moves everything by a move task of SQS. done is false if messages remain
// that may be moved by hand: SQS moves only from dead-letter queues, and a task without
// a target fails at the first message whose source it does not know.
func (h *handle) moveByTask(ctx context.Context, target string) (moved int, done bool, err error) {
	input := &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(h.arn)}
	if target != "" {
		input.DestinationArn = aws.String(target)
	}
	task, err := h.backend.client.StartMessageMoveTask(ctx, input, OwnBodies)
	if err != nil {
		switch err = driverError(ctx, err); {
		case isCode(err, driver.ErrUnsupported), isCode(err, driver.ErrInvalid), isCode(err, driver.ErrForbidden):
			return 0, false, nil
		}
		return 0, true, err
	}
	for {
		select {
		case <-time.After(taskPoll):
		case <-ctx.Done():
			h.cancelTask(ctx, task.TaskHandle)
			return moved, true, ctx.Err()
		case <-h.closed:
			return moved, true, h.failure(driver.ErrClosed, "move")
		case <-h.ended:
			return moved, true, h.failure(h.code, "move")
		}
		var running bool
		if moved, running, err = h.taskState(ctx, task.TaskHandle); err != nil || !running {
			if target == "" && errors.Is(err, errTaskFailed) {
				return moved, false, nil
			}
			return moved, true, err
		}
	}
}

// cancelTask cancels the task of a cancelled call.
func (h *handle) cancelTask(ctx context.Context, task *string) {
	_, err := h.backend.client.CancelMessageMoveTask(context.WithoutCancel(ctx), &sqs.CancelMessageMoveTaskInput{TaskHandle: task}, OwnBodies)
	if err != nil {
		h.backend.options.Logger.WarnContext(ctx, "sqsbox: cancelling a move task failed; the task goes on",
			"queue", h.name, "error", err)
	}
}

// taskState returns the progress of a task. SQS reports the handle of a task only while
// it runs, so it looks at the latest task of the queue.
func (h *handle) taskState(ctx context.Context, task *string) (moved int, running bool, err error) {
	output, err := h.backend.client.ListMessageMoveTasks(ctx, &sqs.ListMessageMoveTasksInput{SourceArn: aws.String(h.arn), MaxResults: aws.Int32(1)}, OwnBodies)
	if err != nil {
		return 0, false, driverError(ctx, err)
	}
	if len(output.Results) == 0 {
		return 0, false, &driver.Error{Code: driver.ErrUnavailable, Detail: "SQS does not list the move task " + deref(task)}
	}
	latest := output.Results[0]
	moved = int(latest.ApproximateNumberOfMessagesMoved)
	switch deref(latest.Status) {
	case "RUNNING", "CANCELLING":
		return moved, true, nil
	case "COMPLETED":
		return moved, false, nil
	}
	failure := &driver.Error{
		Code:   driver.ErrUnavailable,
		Detail: "the move task ended as " + deref(latest.Status) + ": " + deref(latest.FailureReason),
	}
	if deref(latest.Status) == "FAILED" {
		failure.Err = errTaskFailed
	}
	return moved, false, failure
}

// errTaskFailed tells a move task that failed from one that was cancelled.
var errTaskFailed = errors.New("move task failed")

// moveByHand moves messages by receiving, sending and deleting them.
func (h *handle) moveByHand(ctx context.Context, to string, limit int) (moved int, err error) {
	m := &mover{handle: h, to: to, targets: make(map[string]*queue)}
	defer m.end(ctx)
	for limit == 0 || moved < limit {
		want := maxEntries
		if limit > 0 {
			want = min(limit-moved, maxEntries)
		}
		output, err := h.backend.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: aws.String(h.url), MaxNumberOfMessages: int32(want), WaitTimeSeconds: 1,
			VisibilityTimeout:     int32(wholeSeconds(moveVisibility)),
			MessageAttributeNames: allAttributes, MessageSystemAttributeNames: systemAttributes,
		}, OwnBodies)
		if err != nil {
			return moved, h.requestError(ctx, err)
		}
		if len(output.Messages) == 0 {
			return moved, nil
		}
		n, err := m.forward(ctx, output.Messages)
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}
