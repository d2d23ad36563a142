package sqswire

// An Action is one of the operations of the API.
type Action string

// The actions.
const (
	AddPermission                Action = "AddPermission"
	CancelMessageMoveTask        Action = "CancelMessageMoveTask"
	ChangeMessageVisibility      Action = "ChangeMessageVisibility"
	ChangeMessageVisibilityBatch Action = "ChangeMessageVisibilityBatch"
	CreateQueue                  Action = "CreateQueue"
	DeleteMessage                Action = "DeleteMessage"
	DeleteMessageBatch           Action = "DeleteMessageBatch"
	DeleteQueue                  Action = "DeleteQueue"
	GetQueueAttributes           Action = "GetQueueAttributes"
	GetQueueURL                  Action = "GetQueueUrl"
	ListDeadLetterSourceQueues   Action = "ListDeadLetterSourceQueues"
	ListMessageMoveTasks         Action = "ListMessageMoveTasks"
	ListQueueTags                Action = "ListQueueTags"
	ListQueues                   Action = "ListQueues"
	PurgeQueue                   Action = "PurgeQueue"
	ReceiveMessage               Action = "ReceiveMessage"
	RemovePermission             Action = "RemovePermission"
	SendMessage                  Action = "SendMessage"
	SendMessageBatch             Action = "SendMessageBatch"
	SetQueueAttributes           Action = "SetQueueAttributes"
	StartMessageMoveTask         Action = "StartMessageMoveTask"
	TagQueue                     Action = "TagQueue"
	UntagQueue                   Action = "UntagQueue"
)

// newInput returns an empty input of the action, and nil if there is no such
// action.
func (a Action) newInput() Input {
	switch a {
	case SendMessage:
		return new(SendMessageInput)
	case SendMessageBatch:
		return new(SendMessageBatchInput)
	case ReceiveMessage:
		return new(ReceiveMessageInput)
	case DeleteMessage:
		return new(DeleteMessageInput)
	case DeleteMessageBatch:
		return new(DeleteMessageBatchInput)
	case ChangeMessageVisibility:
		return new(ChangeMessageVisibilityInput)
	case ChangeMessageVisibilityBatch:
		return new(ChangeMessageVisibilityBatchInput)
	default:
		return a.newQueueInput()
	}
}

// newQueueInput is newInput for the actions that are about queues, not messages.
func (a Action) newQueueInput() Input {
	switch a {
	case CreateQueue:
		return new(CreateQueueInput)
	case DeleteQueue:
		return new(DeleteQueueInput)
	case GetQueueURL:
		return new(GetQueueURLInput)
	case ListQueues:
		return new(ListQueuesInput)
	case GetQueueAttributes:
		return new(GetQueueAttributesInput)
	case SetQueueAttributes:
		return new(SetQueueAttributesInput)
	case PurgeQueue:
		return new(PurgeQueueInput)
	case ListDeadLetterSourceQueues:
		return new(ListDeadLetterSourceQueuesInput)
	case TagQueue:
		return new(TagQueueInput)
	case UntagQueue:
		return new(UntagQueueInput)
	case ListQueueTags:
		return new(ListQueueTagsInput)
	case AddPermission:
		return new(AddPermissionInput)
	case RemovePermission:
		return new(RemovePermissionInput)
	case StartMessageMoveTask:
		return new(StartMessageMoveTaskInput)
	case CancelMessageMoveTask:
		return new(CancelMessageMoveTaskInput)
	case ListMessageMoveTasks:
		return new(ListMessageMoveTasksInput)
	default:
		return nil
	}
}
