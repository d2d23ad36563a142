package sqswire_test

import "github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"

const (
	queueURL  = "http://localhost:9324/000000000000/orders"
	fifoURL   = "http://localhost:9324/000000000000/orders.fifo"
	orderARN  = "arn:aws:sqs:us-east-1:000000000000:orders"
	deadARN   = "arn:aws:sqs:us-east-1:000000000000:orders-dead"
	requestID = "7a1c0c2e-3d5b-4f6a-8b9c-0d1e2f3a4b5c"
	// oddText has a character of each kind that one of the protocols escapes.
	oddText = "a<b>&\"c'\\d/é\u2028😀\t\r\n="
)

// A wireCase is an action with the input of its requests in testdata, and an output to
// answer with.
type wireCase struct {
	action sqswire.Action
	input  sqswire.Input
	output sqswire.Output
}

func cases() []wireCase { return append(messageCases(), queueCases()...) }

func messageCases() []wireCase {
	attributes := map[string]sqswire.MessageAttributeValue{
		"note":       {DataType: "String", StringValue: new(oddText)},
		"price.euro": {DataType: "Number.euro", StringValue: new("12.50")},
		"thumb":      {DataType: "Binary.png", BinaryValue: []byte{0, 0xFF, '+', '/', 0xFE}},
	}
	trace := map[string]sqswire.MessageSystemAttributeValue{
		"AWSTraceHeader": {DataType: "String", StringValue: new("Root=1-5e3d-1")},
	}
	return []wireCase{
		{
			sqswire.SendMessage,
			&sqswire.SendMessageInput{
				QueueURL: fifoURL, MessageBody: oddText, DelaySeconds: new(7), MessageAttributes: attributes,
				MessageSystemAttributes: trace, MessageGroupID: new("group-1"), MessageDeduplicationID: new("once-1"),
			},
			&sqswire.SendMessageOutput{
				MessageID: "01KGM", MD5OfMessageBody: "md5-body", MD5OfMessageAttributes: "md5-attributes",
				MD5OfMessageSystemAttributes: "md5-system", SequenceNumber: "18849496460467696128",
			},
		},
		{
			sqswire.SendMessageBatch,
			&sqswire.SendMessageBatchInput{QueueURL: queueURL, Entries: []sqswire.SendMessageBatchRequestEntry{
				{ID: "a", MessageBody: "one", DelaySeconds: new(3), MessageGroupID: new("tenant")},
				{
					ID: "b", MessageBody: oddText, MessageAttributes: attributes, MessageSystemAttributes: trace,
					MessageDeduplicationID: new("once-2"),
				},
			}},
			&sqswire.SendMessageBatchOutput{
				Successful: []sqswire.SendMessageBatchResultEntry{{
					ID: "a", MessageID: "01KGM", MD5OfMessageBody: "md5-body", MD5OfMessageAttributes: "md5-attributes",
					MD5OfMessageSystemAttributes: "md5-system", SequenceNumber: "18849496460467696128",
				}},
				Failed: []sqswire.BatchResultErrorEntry{sqswire.InvalidMessageContents.Withf("<bad>").Entry("b")},
			},
		},
		{
			sqswire.ReceiveMessage,
			&sqswire.ReceiveMessageInput{
				QueueURL: queueURL, MaxNumberOfMessages: new(10), VisibilityTimeout: new(45), WaitTimeSeconds: new(20),
				AttributeNames: []string{"SenderId"}, MessageSystemAttributeNames: []string{"All"},
				MessageAttributeNames: []string{"note", "price.*"}, ReceiveRequestAttemptID: new("attempt-1"),
			},
			&sqswire.ReceiveMessageOutput{Messages: []sqswire.Message{
				{
					MessageID: "01KGM", ReceiptHandle: "receipt+1/=", MD5OfBody: sqswire.MD5OfBody(oddText), Body: oddText,
					Attributes:             map[string]string{"SenderId": "000000000000", "ApproximateReceiveCount": "1"},
					MD5OfMessageAttributes: "md5-attributes", MessageAttributes: attributes,
				},
				{MessageID: "01KGN", ReceiptHandle: "receipt-2", MD5OfBody: sqswire.MD5OfBody("")},
			}},
		},
		{
			sqswire.DeleteMessage,
			&sqswire.DeleteMessageInput{QueueURL: queueURL, ReceiptHandle: "receipt+1/="},
			&sqswire.DeleteMessageOutput{},
		},
		{
			sqswire.DeleteMessageBatch,
			&sqswire.DeleteMessageBatchInput{QueueURL: queueURL, Entries: []sqswire.DeleteMessageBatchRequestEntry{
				{ID: "a", ReceiptHandle: "receipt+1/="}, {ID: "b", ReceiptHandle: "receipt-2"},
			}},
			&sqswire.DeleteMessageBatchOutput{
				Successful: []sqswire.DeleteMessageBatchResultEntry{{ID: "a"}},
				Failed:     []sqswire.BatchResultErrorEntry{sqswire.ReceiptHandleIsInvalid.Default().Entry("b")},
			},
		},
		{
			sqswire.ChangeMessageVisibility,
			&sqswire.ChangeMessageVisibilityInput{QueueURL: queueURL, ReceiptHandle: "receipt+1/=", VisibilityTimeout: new(0)},
			&sqswire.ChangeMessageVisibilityOutput{},
		},
		{
			sqswire.ChangeMessageVisibilityBatch,
			&sqswire.ChangeMessageVisibilityBatchInput{QueueURL: queueURL, Entries: []sqswire.ChangeMessageVisibilityBatchRequestEntry{
				{ID: "a", ReceiptHandle: "receipt+1/=", VisibilityTimeout: new(60)},
				{ID: "b", ReceiptHandle: "receipt-2", VisibilityTimeout: new(0)},
			}},
			&sqswire.ChangeMessageVisibilityBatchOutput{
				Successful: []sqswire.ChangeMessageVisibilityBatchResultEntry{{ID: "a"}},
				Failed:     []sqswire.BatchResultErrorEntry{sqswire.InternalFailure.Default().Entry("b")},
			},
		},
		{
			sqswire.StartMessageMoveTask,
			&sqswire.StartMessageMoveTaskInput{SourceARN: new(deadARN), DestinationARN: new(orderARN), MaxNumberOfMessagesPerSecond: new(100)},
			&sqswire.StartMessageMoveTaskOutput{TaskHandle: "task-1"},
		},
		{
			sqswire.CancelMessageMoveTask,
			&sqswire.CancelMessageMoveTaskInput{TaskHandle: "task-1"},
			&sqswire.CancelMessageMoveTaskOutput{ApproximateNumberOfMessagesMoved: 0},
		},
		{
			sqswire.ListMessageMoveTasks,
			&sqswire.ListMessageMoveTasksInput{SourceARN: new(deadARN), MaxResults: new(2)},
			&sqswire.ListMessageMoveTasksOutput{Results: []sqswire.ListMessageMoveTasksResultEntry{
				{
					TaskHandle: "task-1", Status: "RUNNING", SourceARN: deadARN, DestinationARN: orderARN,
					MaxNumberOfMessagesPerSecond: new(100), ApproximateNumberOfMessagesMoved: 5,
					ApproximateNumberOfMessagesToMove: new(int64(9)), StartedTimestamp: 1770000000123,
				},
				{Status: "FAILED", SourceARN: deadARN, FailureReason: "CouldNotDetermineMessageSource", StartedTimestamp: 1760000000456},
			}},
		},
	}
}

func queueCases() []wireCase {
	return []wireCase{
		{
			sqswire.CreateQueue,
			&sqswire.CreateQueueInput{
				QueueName:  new("orders.fifo"),
				Attributes: map[string]string{"FifoQueue": "true", "RedrivePolicy": `{"maxReceiveCount":3}`},
				Tags:       map[string]string{"team": "a&b", "empty": ""},
			},
			&sqswire.CreateQueueOutput{QueueURL: fifoURL},
		},
		{sqswire.DeleteQueue, &sqswire.DeleteQueueInput{QueueURL: queueURL}, &sqswire.DeleteQueueOutput{}},
		{
			sqswire.GetQueueURL,
			&sqswire.GetQueueURLInput{QueueName: "orders", QueueOwnerAWSAccountID: "000000000000"},
			&sqswire.GetQueueURLOutput{QueueURL: queueURL},
		},
		{
			sqswire.ListQueues,
			&sqswire.ListQueuesInput{QueueNamePrefix: "ord", MaxResults: new(2), NextToken: "page-2"},
			&sqswire.ListQueuesOutput{QueueURLs: []string{queueURL, fifoURL}, NextToken: "page-3"},
		},
		{
			sqswire.GetQueueAttributes,
			&sqswire.GetQueueAttributesInput{QueueURL: queueURL, AttributeNames: []string{"QueueArn", "RedrivePolicy"}},
			&sqswire.GetQueueAttributesOutput{Attributes: map[string]string{"RedrivePolicy": `{"maxReceiveCount":3}`, "QueueArn": orderARN}},
		},
		{
			sqswire.SetQueueAttributes,
			&sqswire.SetQueueAttributesInput{QueueURL: queueURL, Attributes: map[string]string{"VisibilityTimeout": "60", "Policy": ""}},
			&sqswire.SetQueueAttributesOutput{},
		},
		{sqswire.PurgeQueue, &sqswire.PurgeQueueInput{QueueURL: queueURL}, &sqswire.PurgeQueueOutput{}},
		{
			sqswire.ListDeadLetterSourceQueues,
			&sqswire.ListDeadLetterSourceQueuesInput{QueueURL: queueURL, MaxResults: new(1), NextToken: "page-2"},
			&sqswire.ListDeadLetterSourceQueuesOutput{QueueURLs: []string{fifoURL}, NextToken: "page-3"},
		},
		{
			sqswire.TagQueue,
			&sqswire.TagQueueInput{QueueURL: queueURL, Tags: map[string]string{"team": "a&b", "empty": ""}},
			&sqswire.TagQueueOutput{},
		},
		{
			sqswire.UntagQueue,
			&sqswire.UntagQueueInput{QueueURL: queueURL, TagKeys: []string{"team", "empty"}},
			&sqswire.UntagQueueOutput{},
		},
		{
			sqswire.ListQueueTags,
			&sqswire.ListQueueTagsInput{QueueURL: queueURL},
			&sqswire.ListQueueTagsOutput{Tags: map[string]string{"team": "a&b", "empty": ""}},
		},
		{
			sqswire.AddPermission,
			&sqswire.AddPermissionInput{
				QueueURL: queueURL, Label: "friends", AWSAccountIDs: []string{"111111111111", "222222222222"},
				Actions: []string{"SendMessage", "ReceiveMessage"},
			},
			&sqswire.AddPermissionOutput{},
		},
		{
			sqswire.RemovePermission,
			&sqswire.RemovePermissionInput{QueueURL: queueURL, Label: "friends"},
			&sqswire.RemovePermissionOutput{},
		},
	}
}
