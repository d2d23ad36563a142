package sqswire

// A MessageAttributeValue is a typed attribute of a message.
type MessageAttributeValue struct {
	// DataType is String, Number or Binary, optionally followed by a dot and
	// a label of the sender.
	DataType string
	// StringValue is nil if the request has none; an empty one is refused
	// with a different error.
	StringValue *string
	// BinaryValue is nil if the request has none.
	BinaryValue []byte
	// The lists are part of the API, but no service of AWS accepts them.
	StringListValues []string
	BinaryListValues [][]byte
}

// A MessageSystemAttributeValue is the value of an attribute that AWS defines; only
// AWSTraceHeader can be sent.
type MessageSystemAttributeValue = MessageAttributeValue

// A SendMessageInput asks to send one message.
type SendMessageInput struct {
	QueueURL    string
	MessageBody string
	// DelaySeconds is nil where the delay of the queue applies.
	DelaySeconds            *int
	MessageAttributes       map[string]MessageAttributeValue
	MessageSystemAttributes map[string]MessageSystemAttributeValue
	// MessageGroupID and MessageDeduplicationID are nil if the request has
	// none; empty ones are refused.
	MessageGroupID         *string
	MessageDeduplicationID *string
}

// A SendMessageOutput has the id of the accepted message.
type SendMessageOutput struct {
	MessageID                    string
	MD5OfMessageBody             string
	MD5OfMessageAttributes       string
	MD5OfMessageSystemAttributes string
	SequenceNumber               string
}

// A ReceiveMessageInput asks for messages. Pointers are nil for missing parameters.
type ReceiveMessageInput struct {
	QueueURL            string
	MaxNumberOfMessages *int
	VisibilityTimeout   *int
	WaitTimeSeconds     *int
	// AttributeNames is the old name of MessageSystemAttributeNames; clients
	// use either, or both.
	AttributeNames              []string
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
	ReceiveRequestAttemptID     *string
}

// A ReceiveMessageOutput has the received messages.
type ReceiveMessageOutput struct{ Messages []Message }

// A Message is a delivered message.
type Message struct {
	MessageID     string
	ReceiptHandle string
	MD5OfBody     string
	// Body is written even if it is empty.
	Body                   string
	Attributes             map[string]string
	MD5OfMessageAttributes string
	MessageAttributes      map[string]MessageAttributeValue
}

// A DeleteMessageInput asks to delete a received message.
type DeleteMessageInput struct {
	QueueURL      string
	ReceiptHandle string
}

// A DeleteMessageOutput is empty.
type DeleteMessageOutput struct{}

// A ChangeMessageVisibilityInput asks for more or less time for a message.
type ChangeMessageVisibilityInput struct {
	QueueURL      string
	ReceiptHandle string
	// VisibilityTimeout is required.
	VisibilityTimeout *int
}

// A ChangeMessageVisibilityOutput is empty.
type ChangeMessageVisibilityOutput struct{}

func (v *MessageAttributeValue) members(m *members) {
	m.optional("StringValue", &v.StringValue)
	m.binary("BinaryValue", &v.BinaryValue)
	m.texts("StringListValues", "StringListValue", &v.StringListValues)
	m.binaries("BinaryListValues", "BinaryListValue", &v.BinaryListValues)
	m.text("DataType", &v.DataType)
}

func (in *SendMessageInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.required().text("MessageBody", &in.MessageBody)
	m.integer("DelaySeconds", &in.DelaySeconds)
	m.values("MessageAttributes", "MessageAttribute", &in.MessageAttributes)
	m.values("MessageSystemAttributes", "MessageSystemAttribute", &in.MessageSystemAttributes)
	m.optional("MessageGroupId", &in.MessageGroupID)
	m.optional("MessageDeduplicationId", &in.MessageDeduplicationID)
}

func (out *SendMessageOutput) members(m *members) {
	m.text("MessageId", &out.MessageID)
	m.text("MD5OfMessageBody", &out.MD5OfMessageBody)
	m.text("MD5OfMessageAttributes", &out.MD5OfMessageAttributes)
	m.text("MD5OfMessageSystemAttributes", &out.MD5OfMessageSystemAttributes)
	m.text("SequenceNumber", &out.SequenceNumber)
}

func (in *ReceiveMessageInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.integer("MaxNumberOfMessages", &in.MaxNumberOfMessages)
	m.integer("VisibilityTimeout", &in.VisibilityTimeout)
	m.integer("WaitTimeSeconds", &in.WaitTimeSeconds)
	m.texts("AttributeNames", "AttributeName", &in.AttributeNames)
	m.texts("MessageSystemAttributeNames", "MessageSystemAttributeName", &in.MessageSystemAttributeNames)
	m.texts("MessageAttributeNames", "MessageAttributeName", &in.MessageAttributeNames)
	m.optional("ReceiveRequestAttemptId", &in.ReceiveRequestAttemptID)
}

func (out *ReceiveMessageOutput) members(m *members) {
	m.structures("Messages", "Message", listOf[Message](&out.Messages))
}

func (msg *Message) members(m *members) {
	m.text("MessageId", &msg.MessageID)
	m.text("ReceiptHandle", &msg.ReceiptHandle)
	m.text("MD5OfBody", &msg.MD5OfBody)
	m.always().text("Body", &msg.Body)
	m.attributes("Attributes", &msg.Attributes)
	m.text("MD5OfMessageAttributes", &msg.MD5OfMessageAttributes)
	m.values("MessageAttributes", "MessageAttribute", &msg.MessageAttributes)
}

func (in *DeleteMessageInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.required().text("ReceiptHandle", &in.ReceiptHandle)
}

func (*DeleteMessageOutput) members(*members) {}

func (in *ChangeMessageVisibilityInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.required().text("ReceiptHandle", &in.ReceiptHandle)
	m.required().integer("VisibilityTimeout", &in.VisibilityTimeout)
}

func (*ChangeMessageVisibilityOutput) members(*members) {}
