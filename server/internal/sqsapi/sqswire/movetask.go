package sqswire

// A StartMessageMoveTaskInput asks to move the messages of a dead-letter queue.
type StartMessageMoveTaskInput struct {
	// SourceARN is nil if the request has none; an empty one is refused with a different error.
	SourceARN *string
	// DestinationARN is nil if each message goes back where it came from.
	DestinationARN               *string
	MaxNumberOfMessagesPerSecond *int
}

// A StartMessageMoveTaskOutput names the task.
type StartMessageMoveTaskOutput struct{ TaskHandle string }

// A CancelMessageMoveTaskInput asks to stop a task.
type CancelMessageMoveTaskInput struct{ TaskHandle string }

// A CancelMessageMoveTaskOutput has the progress of the task.
type CancelMessageMoveTaskOutput struct{ ApproximateNumberOfMessagesMoved int64 }

// A ListMessageMoveTasksInput asks for the newest tasks of a source.
type ListMessageMoveTasksInput struct {
	// SourceARN is nil if the request has none; an empty one is refused with a different error.
	SourceARN  *string
	MaxResults *int
}

// A ListMessageMoveTasksOutput holds them, the newest first.
type ListMessageMoveTasksOutput struct {
	Results []ListMessageMoveTasksResultEntry
}

// A ListMessageMoveTasksResultEntry is one task.
type ListMessageMoveTasksResultEntry struct {
	// TaskHandle is set for running tasks, because only those can be
	// cancelled.
	TaskHandle                        string
	Status                            string
	SourceARN                         string
	DestinationARN                    string
	MaxNumberOfMessagesPerSecond      *int
	ApproximateNumberOfMessagesMoved  int64
	ApproximateNumberOfMessagesToMove *int64
	FailureReason                     string
	// StartedTimestamp is in milliseconds since 1970.
	StartedTimestamp int64
}

func (in *StartMessageMoveTaskInput) members(m *members) {
	m.required().optional("SourceArn", &in.SourceARN)
	m.optional("DestinationArn", &in.DestinationARN)
	m.integer("MaxNumberOfMessagesPerSecond", &in.MaxNumberOfMessagesPerSecond)
}

func (out *StartMessageMoveTaskOutput) members(m *members) { m.text("TaskHandle", &out.TaskHandle) }

func (in *CancelMessageMoveTaskInput) members(m *members) {
	m.required().text("TaskHandle", &in.TaskHandle)
}

func (out *CancelMessageMoveTaskOutput) members(m *members) {
	m.number("ApproximateNumberOfMessagesMoved", &out.ApproximateNumberOfMessagesMoved)
}

func (in *ListMessageMoveTasksInput) members(m *members) {
	m.required().optional("SourceArn", &in.SourceARN)
	m.integer("MaxResults", &in.MaxResults)
}

func (out *ListMessageMoveTasksOutput) members(m *members) {
	m.structures("Results", "ListMessageMoveTasksResultEntry", listOf[ListMessageMoveTasksResultEntry](&out.Results))
}

func (e *ListMessageMoveTasksResultEntry) members(m *members) {
	m.text("TaskHandle", &e.TaskHandle)
	m.text("Status", &e.Status)
	m.text("SourceArn", &e.SourceARN)
	m.text("DestinationArn", &e.DestinationARN)
	m.integer("MaxNumberOfMessagesPerSecond", &e.MaxNumberOfMessagesPerSecond)
	m.number("ApproximateNumberOfMessagesMoved", &e.ApproximateNumberOfMessagesMoved)
	m.optionalNumber("ApproximateNumberOfMessagesToMove", &e.ApproximateNumberOfMessagesToMove)
	m.text("FailureReason", &e.FailureReason)
	m.number("StartedTimestamp", &e.StartedTimestamp)
}
