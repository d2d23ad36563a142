package sqsapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// The states of a move task.
const (
	taskRunning    = "RUNNING"
	taskCancelling = "CANCELLING"
	taskCancelled  = "CANCELLED"
	taskCompleted  = "COMPLETED"
	taskFailed     = "FAILED"
)

const (
	// maxTasks is how many tasks of a source are kept.
	maxTasks = 10
	// maxTaskRate is the highest rate, in messages per second.
	maxTaskRate = 500
)

// A moveTask moves the messages of a dead-letter queue. It is kept in the settings
// of that queue.
type moveTask struct {
	ID string `json:"id"`
	// To is the target queue, empty if each message goes to its source, and
	// Destination its ARN as given by the client.
	To          string `json:"to,omitempty"`
	Destination string `json:"destination,omitempty"`
	// Rate is in messages per second; 0 for as fast as possible.
	Rate    int    `json:"rate,omitempty"`
	Status  string `json:"status"`
	Moved   int64  `json:"moved"`
	Total   int64  `json:"total"`
	Failure string `json:"failure,omitempty"`
	// Held is how many messages the source had, in any state, when Moved was stored;
	// 0 if that was not counted. Messages missing since then have moved.
	Held int64 `json:"held,omitempty"`
	// Started is in Unix milliseconds.
	Started int64 `json:"started"`
	// Owner is the daemon that runs the task. It leases the task until Until, in Unix
	// milliseconds, and extends the lease while it runs.
	Owner string `json:"owner,omitempty"`
	Until int64  `json:"until,omitempty"`
}

func (t *moveTask) active() bool { return t.Status == taskRunning || t.Status == taskCancelling }

// record sets the progress of the task, and how many messages its source has now.
func (t *moveTask) record(moved int64, source driver.Stats) {
	t.Moved, t.Held = moved, int64(source.Waiting())
}

// catchUp counts messages that have left the source since the last record, which a
// killed daemon could not count. Messages that consumers removed count as moved, so the
// task does not move messages that arrived after it began in their place. Arrivals since
// the last record hide as many departures: the task moves that many more.
func (t *moveTask) catchUp(source driver.Stats) {
	if gone := t.Held - int64(source.Waiting()); t.Held > 0 && gone > 0 {
		t.Moved = min(t.Moved+gone, t.Total)
	}
}

// activeTask returns the position of the active task, -1 if there is none.
func (s *settings) activeTask() int {
	return slices.IndexFunc(s.Tasks, func(t moveTask) bool { return t.active() })
}

// taskHandle identifies a task to clients.
type taskHandle struct {
	TaskID    string `json:"taskId"`
	SourceARN string `json:"sourceArn"`
}

func (h taskHandle) encode() string {
	text, err := json.Marshal(h)
	if err != nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(text)
}

func parseTaskHandle(text string) (h taskHandle, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	return h, err == nil && json.Unmarshal(raw, &h) == nil && h.TaskID != "" && h.SourceARN != ""
}

// ofARN returns the queue of an ARN, if it exists and belongs to the caller, who must be
// allowed the operation on it.
func (r *request) ofARN(ctx context.Context, parameter, arn string, operation capability.Operation) (*queue, error) {
	account, name, ok := parseARN(arn)
	if !ok {
		return nil, sqswire.InvalidParameterValue.Withf("You must use this format to specify the %s: arn:<partition>:<service>:<region>:<account-id>:<resource-id>", parameter)
	}
	notFound := sqswire.ResourceNotFound.Withf("The resource that you specified for the %s parameter doesn't exist.", parameter)
	if account != r.account {
		return nil, notFound
	}
	if err := r.caller.May(ctx, operation, name); err != nil {
		return nil, err
	}
	q, err := r.service.load(ctx, broker.TenantQueue{Tenant: r.caller.Tenant(), Queue: name})
	if errors.Is(err, sqswire.QueueDoesNotExist) {
		return nil, notFound
	}
	return q, err
}

// startMessageMoveTask begins to move the messages of a dead-letter queue.
func (r *request) startMessageMoveTask(ctx context.Context, in *sqswire.StartMessageMoveTaskInput) (sqswire.Output, error) {
	source, err := r.ofARN(ctx, "SourceArn", *in.SourceARN, capability.OpDLQ)
	if err != nil {
		return nil, err
	}
	task := moveTask{ID: uuid.NewString(), Status: taskRunning, Started: time.Now().UnixMilli()}
	if in.DestinationARN != nil {
		task.Destination = *in.DestinationARN
		target, err := r.ofARN(ctx, "DestinationArn", task.Destination, capability.OpSend)
		switch {
		case err != nil:
			return nil, err
		case target.Queue == source.Queue:
			return nil, sqswire.InvalidParameterValue.Withf("Source queue arn and destination queue arn cannot be the same.")
		case target.FIFO != source.FIFO:
			return nil, sqswire.InvalidParameterValue.Withf("The source queue and destination queue must be of the same queue type.")
		}
		task.To = target.Queue
	}
	if rate := in.MaxNumberOfMessagesPerSecond; rate != nil {
		if *rate < 1 || *rate > maxTaskRate {
			return nil, unnamedValue("MaxNumberOfMessagesPerSecond", "You must enter a number that's between 1 and 500.")
		}
		task.Rate = *rate
	}
	if err := r.checkSource(ctx, source); err != nil {
		return nil, err
	}
	if err := r.service.begin(ctx, source.TenantQueue, &task); err != nil {
		return nil, tooMuch(err)
	}
	return &sqswire.StartMessageMoveTaskOutput{TaskHandle: taskHandle{task.ID, r.arn(source.Queue)}.encode()}, nil
}

// checkSource checks that a queue is a dead-letter queue whose messages can move.
func (r *request) checkSource(ctx context.Context, source *queue) error {
	sources, err := r.service.sourcesOf(ctx, source.TenantQueue)
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return sqswire.InvalidParameterValue.Withf("Source queue must be configured as a Dead Letter Queue.")
	}
	can, err := r.caller.CanMove(ctx, source.Queue)
	if err == nil && !can {
		err = sqswire.UnsupportedOperation.Withf("The backend of this service cannot move messages.")
	}
	return err
}

// begin stores a task and starts it here, for an authorised caller.
func (s *Service) begin(ctx context.Context, source broker.TenantQueue, task *moveTask) error {
	daemon, err := s.daemon(source.Tenant)
	if err != nil {
		return err
	}
	stats, err := daemon.Stats(ctx, source.Queue)
	if err != nil {
		return err
	}
	task.Total = int64(stats.Ready)
	task.record(0, stats)
	task.claim(s.tasks.owner)
	_, err = s.change(ctx, daemon, source, func(q *queue) error {
		if q.activeTask() >= 0 {
			return sqswire.InvalidParameterValue.Withf("There is already a task running. Only one active task is allowed for a source queue arn at a given time.")
		}
		tasks := append(slices.Clone(q.Tasks), *task)
		q.Tasks = tasks[max(0, len(tasks)-maxTasks):]
		return nil
	})
	if err != nil {
		return err
	}
	s.run(ctx, source, *task)
	return nil
}

// cancelMessageMoveTask stops a task. Messages that have moved stay moved.
func (r *request) cancelMessageMoveTask(ctx context.Context, in *sqswire.CancelMessageMoveTaskInput) (sqswire.Output, error) {
	if in.TaskHandle == "" {
		return nil, missing("TaskHandle")
	}
	handle, ok := parseTaskHandle(in.TaskHandle)
	if !ok {
		return nil, sqswire.InvalidParameterValue.Withf("Value for parameter TaskHandle is invalid.")
	}
	source, err := r.ofARN(ctx, "SourceArn", handle.SourceARN, capability.OpDLQ)
	if err != nil {
		return nil, err
	}
	daemon, err := r.service.daemon(source.Tenant)
	if err != nil {
		return nil, err
	}
	var moved int64
	_, err = r.service.change(ctx, daemon, source.TenantQueue, func(q *queue) error {
		i := slices.IndexFunc(q.Tasks, func(t moveTask) bool { return t.ID == handle.TaskID })
		switch {
		case i < 0:
			return sqswire.ResourceNotFound.Withf("Task does not exist.")
		case q.Tasks[i].Status != taskRunning:
			return sqswire.InvalidParameterValue.Withf("Only active tasks can be cancelled.")
		}
		q.Tasks = slices.Clone(q.Tasks)
		q.Tasks[i].Status, moved = taskCancelling, q.Tasks[i].Moved
		return nil
	})
	if err != nil {
		return nil, err
	}
	if here, running := r.service.tasks.cancel(source.TenantQueue); running {
		moved = here
	}
	return &sqswire.CancelMessageMoveTaskOutput{ApproximateNumberOfMessagesMoved: moved}, nil
}

// listMessageMoveTasks lists the tasks of a source, the newest first.
func (r *request) listMessageMoveTasks(ctx context.Context, in *sqswire.ListMessageMoveTasksInput) (sqswire.Output, error) {
	source, err := r.ofARN(ctx, "SourceArn", *in.SourceARN, capability.OpDLQ)
	if err != nil {
		return nil, err
	}
	most := 1
	if in.MaxResults != nil {
		if most = *in.MaxResults; most < 1 || most > maxTasks {
			return nil, unnamedValue("MaxResults", "You must enter a number that's between 1 and 10.")
		}
	}
	out := new(sqswire.ListMessageMoveTasksOutput)
	for _, task := range slices.Backward(source.Tasks) {
		if len(out.Results) == most {
			break
		}
		entry := sqswire.ListMessageMoveTasksResultEntry{
			Status: task.Status, SourceARN: r.arn(source.Queue), DestinationARN: task.Destination,
			ApproximateNumberOfMessagesMoved: task.Moved, ApproximateNumberOfMessagesToMove: &task.Total,
			FailureReason: task.Failure, StartedTimestamp: task.Started,
		}
		if task.Rate > 0 {
			entry.MaxNumberOfMessagesPerSecond = &task.Rate
		}
		if task.Status == taskRunning {
			entry.TaskHandle = taskHandle{task.ID, r.arn(source.Queue)}.encode()
			if here, running := r.service.tasks.moved(source.TenantQueue); running {
				entry.ApproximateNumberOfMessagesMoved = here
			}
		}
		out.Results = append(out.Results, entry)
	}
	return out, nil
}
