package sqsapi

import (
	"time"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// actions are those that are counted by their names. Nobody can make series by
// asking for others.
var actions = func() map[sqswire.Action]bool {
	known := make(map[sqswire.Action]bool)
	for _, action := range []sqswire.Action{
		sqswire.AddPermission, sqswire.CancelMessageMoveTask, sqswire.ChangeMessageVisibility, sqswire.ChangeMessageVisibilityBatch,
		sqswire.CreateQueue, sqswire.DeleteMessage, sqswire.DeleteMessageBatch, sqswire.DeleteQueue, sqswire.GetQueueAttributes,
		sqswire.GetQueueURL, sqswire.ListDeadLetterSourceQueues, sqswire.ListMessageMoveTasks, sqswire.ListQueueTags, sqswire.ListQueues,
		sqswire.PurgeQueue, sqswire.ReceiveMessage, sqswire.RemovePermission, sqswire.SendMessage, sqswire.SendMessageBatch,
		sqswire.SetQueueAttributes, sqswire.StartMessageMoveTask, sqswire.TagQueue, sqswire.UntagQueue,
	} {
		known[action] = true
	}
	return known
}()

// count counts a request that was answered.
func (s *Service) count(action sqswire.Action, err error, took time.Duration) {
	code, name := "", "other"
	if err != nil {
		code = string(faultOf(err, nil).Code)
	}
	if actions[action] {
		name = string(action)
	}
	s.broker.Metrics().SQSRequest(name, code, took)
}
