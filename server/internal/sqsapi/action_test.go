package sqsapi_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// A refusal is a request that AWS refuses, with its error.
type refusal struct {
	action    sqswire.Action
	condition string
	in        fields
	code      sqswire.Code
	message   string
}

const (
	orders    = "http://sqs.example:4566/000000000000/orders"
	fifo      = "http://sqs.example:4566/000000000000/orders.fifo"
	ordersARN = "arn:aws:sqs:us-east-1:000000000000:orders"
	fifoARN   = "arn:aws:sqs:us-east-1:000000000000:orders.fifo"
	deadQueue = "arn:aws:sqs:us-east-1:000000000000:dead"
	mustHave  = "The request must contain the parameter "
	wrongType = "The request include parameter that is not valid for this queue type."
	badRunes  = "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
	arnFormat = ": arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
)

// attribute returns a single message attribute.
func attribute(name string, value fields) map[string]fields { return map[string]fields{name: value} }

var messageRefusals = []refusal{
	{sqswire.SendMessage, "delay on a FIFO queue", fields{"QueueUrl": fifo, "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 2},
		sqswire.InvalidParameterValue, "Value 2 for parameter DelaySeconds is invalid. Reason: " + wrongType},
	{sqswire.SendMessage, "dedup id on a standard queue", fields{"QueueUrl": orders, "MessageBody": "x", "MessageDeduplicationId": "d"},
		sqswire.InvalidParameterValue, "Value d for parameter MessageDeduplicationId is invalid. Reason: " + wrongType},
	{sqswire.SendMessage, "delay too long", fields{"QueueUrl": orders, "MessageBody": "x", "DelaySeconds": 901},
		sqswire.InvalidParameterValue, "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900."},
	{sqswire.SendMessage, "no body", fields{"QueueUrl": orders}, sqswire.MissingParameter, mustHave + "MessageBody."},
	{sqswire.SendMessage, "no group", fields{"QueueUrl": fifo, "MessageBody": "x", "MessageDeduplicationId": "d"}, sqswire.MissingParameter, mustHave + "MessageGroupId."},
	{sqswire.SendMessage, "no dedup id", fields{"QueueUrl": fifo, "MessageBody": "x", "MessageGroupId": "g"},
		sqswire.InvalidParameterValue, "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"},
	{sqswire.SendMessage, "group with a blank", fields{"QueueUrl": orders, "MessageBody": "x", "MessageGroupId": "group 123"},
		sqswire.InvalidParameterValue, "Value group 123 for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length."},
	{sqswire.SendMessage, "control characters in the body", fields{"QueueUrl": orders, "MessageBody": "\b"}, sqswire.InvalidMessageContents, badRunes},
	{sqswire.SendMessage, "control characters in an attribute", fields{"QueueUrl": orders, "MessageBody": "x", "MessageAttributes": attribute("a", fields{"DataType": "String", "StringValue": "\b\v"})},
		sqswire.InvalidParameterValue, badRunes},
	{sqswire.SendMessage, "empty attribute", fields{"QueueUrl": orders, "MessageBody": "x", "MessageAttributes": attribute("a", fields{"DataType": "String", "StringValue": ""})},
		sqswire.InvalidParameterValue, "Message (user) attribute 'a' must contain a non-empty value of type 'String'."},
	{sqswire.SendMessage, "attribute of an unknown type", fields{"QueueUrl": orders, "MessageBody": "x", "MessageAttributes": attribute("a", fields{"DataType": "Text", "StringValue": "x"})},
		sqswire.InvalidParameterValue, "The type of message (user) attribute 'a' is invalid. You must use only the following supported type prefixes: Binary, Number, String."},
	{sqswire.SendMessage, "attribute without a type", fields{"QueueUrl": orders, "MessageBody": "x", "MessageAttributes": attribute("a", fields{"StringValue": "x"})},
		sqswire.InvalidParameterValue, "The message (user) attribute 'a' must contain a non-empty message attribute type."},
	{sqswire.SendMessage, "attribute in the wrong field", fields{"QueueUrl": orders, "MessageBody": "x", "MessageAttributes": attribute("a", fields{"DataType": "String", "BinaryValue": "eA=="})},
		sqswire.InvalidParameterValue, "Message (user) attribute 'a' with type 'String' must use field 'String'."},
	{sqswire.SendMessage, "attribute that is not a number", fields{"QueueUrl": orders, "MessageBody": "x", "MessageAttributes": attribute("a", fields{"DataType": "Number", "StringValue": "x"})},
		sqswire.InvalidParameterValue, "Can't cast the value of message (user) attribute 'a' to a number."},
	{sqswire.SendMessage, "reserved attribute name", fields{"QueueUrl": orders, "MessageBody": "x", "MessageAttributes": attribute("aWs.x", fields{"DataType": "String", "StringValue": "x"})},
		sqswire.InvalidParameterValue, "You can't use message attribute names beginning with 'AWS.' or 'Amazon'. These strings are reserved for internal use."},
	{sqswire.SendMessage, "attribute name with a dot in front", fields{"QueueUrl": orders, "MessageBody": "x", "MessageAttributes": attribute(".x", fields{"DataType": "String", "StringValue": "x"})},
		sqswire.InvalidParameterValue, "Message (user) attribute name must not begin with character '.'."},
	{sqswire.SendMessage, "long attribute name", fields{"QueueUrl": orders, "MessageBody": "x", "MessageAttributes": attribute(strings.Repeat("a", 257), fields{"DataType": "String", "StringValue": "x"})},
		sqswire.InvalidParameterValue, "Message (user) attribute name must be shorter than 256 bytes."},
	{sqswire.SendMessage, "unknown system attribute", fields{"QueueUrl": orders, "MessageBody": "x", "MessageSystemAttributes": attribute("Hello", fields{"DataType": "String", "StringValue": "x"})},
		sqswire.InvalidParameterValue, "Message system attribute name 'Hello' is invalid."},

	{sqswire.SendMessageBatch, "entry without a group", fields{"QueueUrl": fifo, "Entries": []fields{
		{"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1"}, {"Id": "b", "MessageBody": "x", "MessageDeduplicationId": "2"},
	}}, sqswire.InvalidParameterValue, mustHave + "MessageGroupId."},
	{sqswire.SendMessageBatch, "entry without a dedup id", fields{"QueueUrl": fifo, "Entries": []fields{
		{"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1"}, {"Id": "b", "MessageBody": "x", "MessageGroupId": "g"},
	}}, sqswire.InvalidParameterValue, "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"},
	{sqswire.SendMessageBatch, "entry with a delay on a FIFO queue", fields{"QueueUrl": fifo, "Entries": []fields{
		{"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1"}, {"Id": "b", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "2", "DelaySeconds": 3},
	}}, sqswire.InvalidParameterValue, "Value 3 for parameter DelaySeconds is invalid. Reason: " + wrongType},
	{sqswire.SendMessageBatch, "id with a colon", fields{"QueueUrl": orders, "Entries": []fields{{"Id": "a:b", "MessageBody": "x"}}},
		sqswire.InvalidBatchEntryID, "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long."},
	{sqswire.SendMessageBatch, "id repeated", fields{"QueueUrl": orders, "Entries": []fields{{"Id": "a", "MessageBody": "x"}, {"Id": "a", "MessageBody": "x"}}},
		sqswire.BatchEntryIDsNotDistinct, "Id a repeated."},
	{sqswire.SendMessageBatch, "no entries", fields{"QueueUrl": orders}, sqswire.EmptyBatchRequest, "There should be at least one SendMessageBatchRequestEntry in the request."},

	{sqswire.ReceiveMessage, "too many", fields{"QueueUrl": orders, "MaxNumberOfMessages": 11},
		sqswire.InvalidParameterValue, "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided."},
	{sqswire.ReceiveMessage, "too long a wait", fields{"QueueUrl": orders, "WaitTimeSeconds": 21},
		sqswire.InvalidParameterValue, "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided."},
	{sqswire.ReceiveMessage, "too long a visibility", fields{"QueueUrl": orders, "VisibilityTimeout": 43201},
		sqswire.InvalidParameterValue, "Value 43201 for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided."},
	{sqswire.ReceiveMessage, "attempt id on a standard queue", fields{"QueueUrl": orders, "ReceiveRequestAttemptId": "a"},
		sqswire.InvalidParameterValue, "Value a for parameter ReceiveRequestAttemptId is invalid. Reason: " + wrongType},
	{sqswire.ReceiveMessage, "unknown attribute", fields{"QueueUrl": orders, "AttributeNames": []string{"Foobar"}}, sqswire.InvalidAttributeName, "Unknown Attribute Foobar."},

	{sqswire.DeleteMessage, "no receipt", fields{"QueueUrl": orders}, sqswire.MissingParameter, mustHave + "ReceiptHandle."},
	{sqswire.DeleteMessage, "garbage for a receipt", fields{"QueueUrl": orders, "ReceiptHandle": `gar\bage`},
		sqswire.ReceiptHandleIsInvalid, `The input receipt handle "gar\bage" is not a valid receipt handle.`},
	{sqswire.DeleteMessageBatch, "no entries", fields{"QueueUrl": orders}, sqswire.EmptyBatchRequest, "There should be at least one DeleteMessageBatchRequestEntry in the request."},
	{sqswire.ChangeMessageVisibility, "no visibility", fields{"QueueUrl": orders, "ReceiptHandle": "r"}, sqswire.MissingParameter, mustHave + "VisibilityTimeout."},
	{sqswire.ChangeMessageVisibility, "too long", fields{"QueueUrl": orders, "ReceiptHandle": "r", "VisibilityTimeout": 43201},
		sqswire.InvalidParameterValue, "Value 43201 for parameter VisibilityTimeout is invalid. Reason: VisibilityTimeout must be an integer between 0 and 43200."},
	{sqswire.ChangeMessageVisibilityBatch, "no entries", fields{"QueueUrl": orders}, sqswire.EmptyBatchRequest, "There should be at least one ChangeMessageVisibilityBatchRequestEntry in the request."},
}

var queueRefusals = []refusal{
	{sqswire.CreateQueue, "no name", fields{}, sqswire.InvalidParameterValue, "Value for parameter QueueName is invalid. Reason: Must specify a queue name."},
	{sqswire.CreateQueue, "empty name", fields{"QueueName": ""}, sqswire.InvalidParameterValue, "Queue name cannot be empty"},
	{sqswire.CreateQueue, "bad name", fields{"QueueName": "in.fo"}, sqswire.InvalidParameterValue, "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"},
	{sqswire.CreateQueue, "FifoQueue false", fields{"QueueName": "new", "Attributes": map[string]string{"FifoQueue": "false"}}, sqswire.InvalidAttributeName, "Unknown Attribute FifoQueue."},
	{sqswire.CreateQueue, "content dedup on a standard queue", fields{"QueueName": "new", "Attributes": map[string]string{"ContentBasedDeduplication": "true"}},
		sqswire.InvalidAttributeName, "Unknown Attribute ContentBasedDeduplication."},
	{sqswire.CreateQueue, "dedup scope on a standard queue", fields{"QueueName": "new", "Attributes": map[string]string{"DeduplicationScope": "queue"}},
		sqswire.InvalidAttributeName, "You can specify the DeduplicationScope only when FifoQueue is set to true."},
	{sqswire.CreateQueue, "other attributes", fields{"QueueName": "orders", "Attributes": map[string]string{"DelaySeconds": "2"}},
		sqswire.QueueNameExists, "A queue already exists with the same name and a different value for attribute DelaySeconds"},
	{sqswire.CreateQueue, "both kinds of encryption", fields{"QueueName": "new", "Attributes": map[string]string{"KmsMasterKeyId": "key", "SqsManagedSseEnabled": "true"}},
		sqswire.InvalidAttributeName, "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."},
	{sqswire.CreateQueue, "bad tag key", fields{"QueueName": "new", "tags": map[string]string{"a%b": "x"}},
		sqswire.InvalidParameterValue, "Tag keys may only contain unicode letters, digits, whitespace, or one of these symbols: _ . : / = + - @"},
	{sqswire.GetQueueURL, "empty name", fields{"QueueName": ""}, sqswire.InvalidParameterValue, "Value for parameter QueueName is invalid. Reason: Must specify a queue name."},
	{sqswire.GetQueueAttributes, "unknown attribute", fields{"QueueUrl": orders, "AttributeNames": []string{"Foobar"}}, sqswire.InvalidAttributeName, "Unknown Attribute Foobar."},
	{sqswire.ListQueues, "too many", fields{"MaxResults": 1001}, sqswire.InvalidParameterValue, "Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer between 1 and 1000."},
	{sqswire.ListDeadLetterSourceQueues, "too few", fields{"QueueUrl": orders, "MaxResults": 0}, sqswire.InvalidParameterValue, "Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer between 1 and 1000."},

	{sqswire.SetQueueAttributes, "no attributes", fields{"QueueUrl": orders}, sqswire.MissingParameter, mustHave + "Attribute.Name."},
	{sqswire.SetQueueAttributes, "FifoQueue on a standard queue", fields{"QueueUrl": orders, "Attributes": map[string]string{"FifoQueue": "true"}}, sqswire.InvalidAttributeName, "Unknown Attribute FifoQueue."},
	{sqswire.SetQueueAttributes, "FifoQueue false on a FIFO queue", fields{"QueueUrl": fifo, "Attributes": map[string]string{"FifoQueue": "false"}},
		sqswire.InvalidAttributeValue, "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."},
	{sqswire.SetQueueAttributes, "content dedup on a standard queue", fields{"QueueUrl": orders, "Attributes": map[string]string{"ContentBasedDeduplication": "true"}},
		sqswire.InvalidAttributeName, "Unknown Attribute ContentBasedDeduplication."},
	{sqswire.SetQueueAttributes, "both kinds of encryption", fields{"QueueUrl": orders, "Attributes": map[string]string{"KmsMasterKeyId": "key", "SqsManagedSseEnabled": "true"}},
		sqswire.InvalidAttributeName, "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."},
	{sqswire.SetQueueAttributes, "number out of range", fields{"QueueUrl": orders, "Attributes": map[string]string{"DelaySeconds": "901"}}, sqswire.InvalidAttributeValue, "Invalid value for the parameter DelaySeconds."},
	{sqswire.SetQueueAttributes, "redrive policy that is not a map", fields{"QueueUrl": orders, "Attributes": map[string]string{"RedrivePolicy": "4"}},
		sqswire.InvalidAttributeValue, "Invalid value for the parameter RedrivePolicy. Reason: Redrive policy is not a valid JSON map."},
	{sqswire.SetQueueAttributes, "redrive policy of nothing", fields{"QueueUrl": orders, "Attributes": map[string]string{"RedrivePolicy": "{}"}},
		sqswire.InvalidParameterValue, "Value {} for parameter RedrivePolicy is invalid. Reason: Redrive policy does not contain mandatory attribute: maxReceiveCount."},
	{sqswire.SetQueueAttributes, "redrive policy to SNS", fields{"QueueUrl": orders, "Attributes": map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sns:us-east-1:000000000000:t","maxReceiveCount":5}`}},
		sqswire.InvalidParameterValue, `Value {"deadLetterTargetArn":"arn:aws:sns:us-east-1:000000000000:t","maxReceiveCount":5} for parameter RedrivePolicy is invalid. Reason: Only SQS queues are valid resources for deadLetterTargetArn.`},
	{sqswire.SetQueueAttributes, "redrive policy with more", fields{"QueueUrl": orders, "Attributes": map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"` + deadQueue + `","maxReceiveCount":5,"x":1}`}},
		sqswire.InvalidParameterValue, `Value {"deadLetterTargetArn":"` + deadQueue + `","maxReceiveCount":5,"x":1} for parameter RedrivePolicy is invalid. Reason: Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn].`},
	{sqswire.SetQueueAttributes, "redrive policy to a FIFO queue", fields{"QueueUrl": orders, "Attributes": map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"` + fifoARN + `","maxReceiveCount":5}`}},
		sqswire.InvalidParameterValue, `Value {"deadLetterTargetArn":"` + fifoARN + `","maxReceiveCount":5} for parameter RedrivePolicy is invalid. Reason: Dead-letter queue must be same type of queue as the source..`},
	{sqswire.SetQueueAttributes, "redrive allow policy of nothing", fields{"QueueUrl": orders, "Attributes": map[string]string{"RedriveAllowPolicy": "{}"}},
		sqswire.InvalidAttributeValue, "Invalid value for the parameter RedriveAllowPolicy. Reason: Amazon SQS can't create the redrive allow policy, as it’s in an unsupported format."},
	{sqswire.SetQueueAttributes, "redrive allow policy by no queue", fields{"QueueUrl": orders, "Attributes": map[string]string{"RedriveAllowPolicy": `{"redrivePermission":"byQueue"}`}},
		sqswire.InvalidParameterValue, `Value {"redrivePermission":"byQueue"} for parameter RedriveAllowPolicy is invalid. Reason: Amazon SQS can't create the redrive allow policy. When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values.`},

	{sqswire.TagQueue, "no tags", fields{"QueueUrl": orders}, sqswire.MissingParameter, mustHave + "Tags."},
	{sqswire.TagQueue, "long key", fields{"QueueUrl": orders, "Tags": map[string]string{strings.Repeat("a", 129): "x"}}, sqswire.InvalidParameterValue, "Tag keys must be between 1 and 128 characters in length."},
	{sqswire.UntagQueue, "no keys", fields{"QueueUrl": orders}, sqswire.MissingParameter, mustHave + "TagKeys."},
	{sqswire.UntagQueue, "empty list", fields{"QueueUrl": orders, "TagKeys": []string{}}, sqswire.InvalidParameterValue, "Tag keys must be between 1 and 128 characters in length."},
	{sqswire.AddPermission, "no label", fields{"QueueUrl": orders, "AWSAccountIds": []string{"111111111111"}, "Actions": []string{"*"}}, sqswire.MissingParameter, mustHave + "Label."},
	{sqswire.AddPermission, "empty list of actions", fields{"QueueUrl": orders, "Label": "l", "AWSAccountIds": []string{"111111111111"}, "Actions": []string{}}, sqswire.MissingParameter, mustHave + "Actions."},
	{sqswire.AddPermission, "empty list of accounts", fields{"QueueUrl": orders, "Label": "l", "AWSAccountIds": []string{}, "Actions": []string{"*"}},
		sqswire.InvalidParameterValue, "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify."},
	{sqswire.AddPermission, "action of the owner", fields{"QueueUrl": orders, "Label": "l", "AWSAccountIds": []string{"111111111111"}, "Actions": []string{"RemovePermission"}},
		sqswire.InvalidParameterValue, "Value SQS:RemovePermission for parameter ActionName is invalid. Reason: Only the queue owner is allowed to invoke this action."},
	{sqswire.AddPermission, "unknown action", fields{"QueueUrl": orders, "Label": "l", "AWSAccountIds": []string{"111111111111"}, "Actions": []string{"SendMessageBatch"}},
		sqswire.InvalidParameterValue, "Value SQS:SendMessageBatch for parameter ActionName is invalid. Reason: Please refer to the appropriate WSDL for a list of valid actions."},
	{sqswire.AddPermission, "eight actions", fields{"QueueUrl": orders, "Label": "l", "AWSAccountIds": []string{"111111111111"}, "Actions": strings.Split(strings.Repeat("* ", 7)+"*", " ")},
		sqswire.OverLimit, "8 Actions were found, maximum allowed is 7."},
	{sqswire.RemovePermission, "unknown label", fields{"QueueUrl": orders, "Label": "l"}, sqswire.InvalidParameterValue, "Value l for parameter Label is invalid. Reason: can't find label."},

	{sqswire.StartMessageMoveTask, "no source", fields{}, sqswire.MissingParameter, mustHave + "SourceArn."},
	{sqswire.StartMessageMoveTask, "empty source", fields{"SourceArn": ""}, sqswire.InvalidParameterValue, "You must use this format to specify the SourceArn" + arnFormat},
	{sqswire.StartMessageMoveTask, "source that is not there", fields{"SourceArn": "arn:aws:sqs:us-east-1:000000000000:none"}, sqswire.ResourceNotFound, "The resource that you specified for the SourceArn parameter doesn't exist."},
	{sqswire.StartMessageMoveTask, "source that is not a dead-letter queue", fields{"SourceArn": ordersARN}, sqswire.InvalidParameterValue, "Source queue must be configured as a Dead Letter Queue."},
	{sqswire.StartMessageMoveTask, "empty destination", fields{"SourceArn": deadQueue, "DestinationArn": ""}, sqswire.InvalidParameterValue, "You must use this format to specify the DestinationArn" + arnFormat},
	{sqswire.StartMessageMoveTask, "destination that is not there", fields{"SourceArn": deadQueue, "DestinationArn": "arn:aws:sqs:us-east-1:000000000000:none"}, sqswire.ResourceNotFound, "The resource that you specified for the DestinationArn parameter doesn't exist."},
	{sqswire.StartMessageMoveTask, "destination that is the source", fields{"SourceArn": deadQueue, "DestinationArn": deadQueue}, sqswire.InvalidParameterValue, "Source queue arn and destination queue arn cannot be the same."},
	{sqswire.StartMessageMoveTask, "destination of another kind", fields{"SourceArn": deadQueue, "DestinationArn": fifoARN}, sqswire.InvalidParameterValue, "The source queue and destination queue must be of the same queue type."},
	{sqswire.StartMessageMoveTask, "rate out of range", fields{"SourceArn": deadQueue, "MaxNumberOfMessagesPerSecond": 501},
		sqswire.InvalidParameterValue, "Value for parameter MaxNumberOfMessagesPerSecond is invalid. Reason: You must enter a number that's between 1 and 500."},
	{sqswire.ListMessageMoveTasks, "too many", fields{"SourceArn": deadQueue, "MaxResults": 11}, sqswire.InvalidParameterValue, "Value for parameter MaxResults is invalid. Reason: You must enter a number that's between 1 and 10."},
	{sqswire.ListMessageMoveTasks, "empty source", fields{"SourceArn": ""}, sqswire.InvalidParameterValue, "You must use this format to specify the SourceArn" + arnFormat},
	{sqswire.CancelMessageMoveTask, "garbage for a handle", fields{"TaskHandle": "garbage"}, sqswire.InvalidParameterValue, "Value for parameter TaskHandle is invalid."},
	{sqswire.PurgeQueue, "queue in no URL", fields{"QueueUrl": "http://sqs.example:4566/"}, sqswire.QueueDoesNotExist, ""},
	{sqswire.ListQueueTags, "queue that is not there", fields{"QueueUrl": "http://sqs.example:4566/000000000000/none"}, sqswire.QueueDoesNotExist, ""},
	{sqswire.DeleteQueue, "queue that is not there", fields{"QueueUrl": "http://sqs.example:4566/000000000000/none"}, sqswire.QueueDoesNotExist, ""},
}

func TestActionsRefuseAsAWSDoesInEveryProtocol(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, func(t *testing.T) {
			d := serve(t, setup{unsigned: true})
			c := d.client("")
			c.create("dead")
			c.create("orders")
			c.create("work", "RedrivePolicy", `{"deadLetterTargetArn":"`+deadQueue+`","maxReceiveCount":1}`)
			c.createFIFO("orders.fifo")
			for _, refusals := range [][]refusal{messageRefusals, queueRefusals} {
				for _, r := range refusals {
					t.Logf("%s by %s: %s", r.action, p.name, r.condition)
					message := r.message
					if message == "" {
						message = "The specified queue does not exist."
						if p.name != "JSON" {
							message = "The specified queue does not exist for this wsdl version."
						}
					}
					d.call(p, r.action, r.in).expect(t, r.code, message)
				}
			}
			for _, queue := range []string{"orders", "orders.fifo", "dead"} {
				if n := c.count(&queue); n != "0" {
					t.Errorf("%s has %s messages, all were refused", queue, n)
				}
			}
			urls, err := c.ListQueues(t.Context(), nil)
			if err != nil || len(urls.QueueUrls) != 4 {
				t.Errorf("there are the queues %v, %v", urls, err)
			}
		})
	}
}
