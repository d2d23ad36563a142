package sqswire_test

import (
	"context"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// An exchange is an action from the view of the AWS client: a call with the input of
// the action's wireCase, and the result that the client returns.
type exchange struct {
	call   func(ctx context.Context, c *sqs.Client) (any, error)
	output any
}

// try returns an exchange for a method of the client.
func try[I, O any](call func(*sqs.Client, context.Context, *I, ...func(*sqs.Options)) (*O, error), in *I, out *O) exchange {
	return exchange{func(ctx context.Context, c *sqs.Client) (any, error) { return call(c, ctx, in) }, out}
}

func sdkExchanges() map[sqswire.Action]exchange {
	all := sdkMessages()
	maps.Copy(all, sdkQueues())
	return all
}

func sdkMessages() map[sqswire.Action]exchange {
	str, attributes := aws.String, map[string]types.MessageAttributeValue{
		"note":       {DataType: aws.String("String"), StringValue: aws.String(oddText)},
		"price.euro": {DataType: aws.String("Number.euro"), StringValue: aws.String("12.50")},
		"thumb":      {DataType: aws.String("Binary.png"), BinaryValue: []byte{0, 0xFF, '+', '/', 0xFE}},
	}
	trace := map[string]types.MessageSystemAttributeValue{"AWSTraceHeader": {DataType: str("String"), StringValue: str("Root=1-5e3d-1")}}
	return map[sqswire.Action]exchange{
		sqswire.SendMessage: try((*sqs.Client).SendMessage, &sqs.SendMessageInput{
			QueueUrl: str(fifoURL), MessageBody: str(oddText), DelaySeconds: 7, MessageAttributes: attributes,
			MessageSystemAttributes: trace, MessageGroupId: str("group-1"), MessageDeduplicationId: str("once-1"),
		}, &sqs.SendMessageOutput{
			MessageId: str("01KGM"), MD5OfMessageBody: str(sqswire.MD5OfBody(oddText)), MD5OfMessageAttributes: str("md5-attributes"),
			MD5OfMessageSystemAttributes: str("md5-system"), SequenceNumber: str("18849496460467696128"),
		}),
		sqswire.SendMessageBatch: try((*sqs.Client).SendMessageBatch, &sqs.SendMessageBatchInput{
			QueueUrl: str(queueURL), Entries: []types.SendMessageBatchRequestEntry{
				{Id: str("a"), MessageBody: str("one"), DelaySeconds: 3, MessageGroupId: str("tenant")},
				{
					Id: str("b"), MessageBody: str(oddText), MessageAttributes: attributes, MessageSystemAttributes: trace,
					MessageDeduplicationId: str("once-2"),
				},
			},
		}, &sqs.SendMessageBatchOutput{
			Successful: []types.SendMessageBatchResultEntry{{
				Id: str("a"), MessageId: str("01KGM"), MD5OfMessageBody: str(sqswire.MD5OfBody("one")), MD5OfMessageAttributes: str("md5-attributes"),
				MD5OfMessageSystemAttributes: str("md5-system"), SequenceNumber: str("18849496460467696128"),
			}},
			Failed: []types.BatchResultErrorEntry{{Id: str("b"), Code: str("InvalidMessageContents"), Message: str("<bad>"), SenderFault: true}},
		}),
		sqswire.ReceiveMessage: try((*sqs.Client).ReceiveMessage, &sqs.ReceiveMessageInput{
			QueueUrl: str(queueURL), MaxNumberOfMessages: 10, VisibilityTimeout: 45, WaitTimeSeconds: 20, MessageAttributeNames: []string{"note", "price.*"},
			AttributeNames:              []types.QueueAttributeName{"SenderId"}, //nolint:staticcheck // old clients send it
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}, ReceiveRequestAttemptId: str("attempt-1"),
		}, &sqs.ReceiveMessageOutput{Messages: []types.Message{
			{
				MessageId: str("01KGM"), ReceiptHandle: str("receipt+1/="), MD5OfBody: str(sqswire.MD5OfBody(oddText)), Body: str(oddText),
				Attributes:             map[string]string{"SenderId": "000000000000", "ApproximateReceiveCount": "1"},
				MD5OfMessageAttributes: str("md5-attributes"), MessageAttributes: attributes,
			},
			{MessageId: str("01KGN"), ReceiptHandle: str("receipt-2"), MD5OfBody: str(sqswire.MD5OfBody("")), Body: str("")},
		}}),
		sqswire.DeleteMessage: try((*sqs.Client).DeleteMessage,
			&sqs.DeleteMessageInput{QueueUrl: str(queueURL), ReceiptHandle: str("receipt+1/=")}, &sqs.DeleteMessageOutput{}),
		sqswire.DeleteMessageBatch: try((*sqs.Client).DeleteMessageBatch, &sqs.DeleteMessageBatchInput{
			QueueUrl: str(queueURL), Entries: []types.DeleteMessageBatchRequestEntry{
				{Id: str("a"), ReceiptHandle: str("receipt+1/=")}, {Id: str("b"), ReceiptHandle: str("receipt-2")},
			},
		}, &sqs.DeleteMessageBatchOutput{
			Successful: []types.DeleteMessageBatchResultEntry{{Id: str("a")}},
			Failed: []types.BatchResultErrorEntry{{
				Id: str("b"), Code: str("ReceiptHandleIsInvalid"), Message: str(sqswire.ReceiptHandleIsInvalid.Default().Message), SenderFault: true,
			}},
		}),
		sqswire.ChangeMessageVisibility: try((*sqs.Client).ChangeMessageVisibility,
			&sqs.ChangeMessageVisibilityInput{QueueUrl: str(queueURL), ReceiptHandle: str("receipt+1/=")}, &sqs.ChangeMessageVisibilityOutput{}),
		sqswire.ChangeMessageVisibilityBatch: try((*sqs.Client).ChangeMessageVisibilityBatch, &sqs.ChangeMessageVisibilityBatchInput{
			QueueUrl: str(queueURL), Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
				{Id: str("a"), ReceiptHandle: str("receipt+1/="), VisibilityTimeout: 60}, {Id: str("b"), ReceiptHandle: str("receipt-2")},
			},
		}, &sqs.ChangeMessageVisibilityBatchOutput{
			Successful: []types.ChangeMessageVisibilityBatchResultEntry{{Id: str("a")}},
			Failed: []types.BatchResultErrorEntry{{
				Id: str("b"), Code: str(sqswire.InternalFailure.Query()), Message: str(sqswire.InternalFailure.Default().Message),
			}},
		}),
		sqswire.StartMessageMoveTask: try((*sqs.Client).StartMessageMoveTask, &sqs.StartMessageMoveTaskInput{
			SourceArn: str(deadARN), DestinationArn: str(orderARN), MaxNumberOfMessagesPerSecond: aws.Int32(100),
		}, &sqs.StartMessageMoveTaskOutput{TaskHandle: str("task-1")}),
		sqswire.CancelMessageMoveTask: try((*sqs.Client).CancelMessageMoveTask,
			&sqs.CancelMessageMoveTaskInput{TaskHandle: str("task-1")}, &sqs.CancelMessageMoveTaskOutput{}),
		sqswire.ListMessageMoveTasks: try((*sqs.Client).ListMessageMoveTasks,
			&sqs.ListMessageMoveTasksInput{SourceArn: str(deadARN), MaxResults: aws.Int32(2)},
			&sqs.ListMessageMoveTasksOutput{Results: []types.ListMessageMoveTasksResultEntry{
				{
					TaskHandle: str("task-1"), Status: str("RUNNING"), SourceArn: str(deadARN), DestinationArn: str(orderARN),
					MaxNumberOfMessagesPerSecond: aws.Int32(100), ApproximateNumberOfMessagesMoved: 5,
					ApproximateNumberOfMessagesToMove: aws.Int64(9), StartedTimestamp: 1770000000123,
				},
				{Status: str("FAILED"), SourceArn: str(deadARN), FailureReason: str("CouldNotDetermineMessageSource"), StartedTimestamp: 1760000000456},
			}}),
	}
}

func sdkQueues() map[sqswire.Action]exchange {
	str, tags := aws.String, map[string]string{"team": "a&b", "empty": ""}
	return map[sqswire.Action]exchange{
		sqswire.CreateQueue: try((*sqs.Client).CreateQueue, &sqs.CreateQueueInput{
			QueueName: str("orders.fifo"), Tags: tags,
			Attributes: map[string]string{"FifoQueue": "true", "RedrivePolicy": `{"maxReceiveCount":3}`},
		}, &sqs.CreateQueueOutput{QueueUrl: str(fifoURL)}),
		sqswire.DeleteQueue: try((*sqs.Client).DeleteQueue, &sqs.DeleteQueueInput{QueueUrl: str(queueURL)}, &sqs.DeleteQueueOutput{}),
		sqswire.GetQueueURL: try((*sqs.Client).GetQueueUrl,
			&sqs.GetQueueUrlInput{QueueName: str("orders"), QueueOwnerAWSAccountId: str("000000000000")},
			&sqs.GetQueueUrlOutput{QueueUrl: str(queueURL)}),
		sqswire.ListQueues: try((*sqs.Client).ListQueues,
			&sqs.ListQueuesInput{QueueNamePrefix: str("ord"), MaxResults: aws.Int32(2), NextToken: str("page-2")},
			&sqs.ListQueuesOutput{QueueUrls: []string{queueURL, fifoURL}, NextToken: str("page-3")}),
		sqswire.GetQueueAttributes: try((*sqs.Client).GetQueueAttributes,
			&sqs.GetQueueAttributesInput{QueueUrl: str(queueURL), AttributeNames: []types.QueueAttributeName{"QueueArn", "RedrivePolicy"}},
			&sqs.GetQueueAttributesOutput{Attributes: map[string]string{"RedrivePolicy": `{"maxReceiveCount":3}`, "QueueArn": orderARN}}),
		sqswire.SetQueueAttributes: try((*sqs.Client).SetQueueAttributes,
			&sqs.SetQueueAttributesInput{QueueUrl: str(queueURL), Attributes: map[string]string{"VisibilityTimeout": "60", "Policy": ""}},
			&sqs.SetQueueAttributesOutput{}),
		sqswire.PurgeQueue: try((*sqs.Client).PurgeQueue, &sqs.PurgeQueueInput{QueueUrl: str(queueURL)}, &sqs.PurgeQueueOutput{}),
		sqswire.ListDeadLetterSourceQueues: try((*sqs.Client).ListDeadLetterSourceQueues,
			&sqs.ListDeadLetterSourceQueuesInput{QueueUrl: str(queueURL), MaxResults: aws.Int32(1), NextToken: str("page-2")},
			&sqs.ListDeadLetterSourceQueuesOutput{QueueUrls: []string{fifoURL}, NextToken: str("page-3")}),
		sqswire.TagQueue: try((*sqs.Client).TagQueue, &sqs.TagQueueInput{QueueUrl: str(queueURL), Tags: tags}, &sqs.TagQueueOutput{}),
		sqswire.UntagQueue: try((*sqs.Client).UntagQueue,
			&sqs.UntagQueueInput{QueueUrl: str(queueURL), TagKeys: []string{"team", "empty"}}, &sqs.UntagQueueOutput{}),
		sqswire.ListQueueTags: try((*sqs.Client).ListQueueTags,
			&sqs.ListQueueTagsInput{QueueUrl: str(queueURL)}, &sqs.ListQueueTagsOutput{Tags: tags}),
		sqswire.AddPermission: try((*sqs.Client).AddPermission, &sqs.AddPermissionInput{
			QueueUrl: str(queueURL), Label: str("friends"), AWSAccountIds: []string{"111111111111", "222222222222"},
			Actions: []string{"SendMessage", "ReceiveMessage"},
		}, &sqs.AddPermissionOutput{}),
		sqswire.RemovePermission: try((*sqs.Client).RemovePermission,
			&sqs.RemovePermissionInput{QueueUrl: str(queueURL), Label: str("friends")}, &sqs.RemovePermissionOutput{}),
	}
}
