package sqswire

// A SendMessageBatchInput asks to send up to ten messages.
type SendMessageBatchInput struct {
	QueueURL string
	Entries  []SendMessageBatchRequestEntry
}

// A SendMessageBatchRequestEntry is one of them; see [SendMessageInput].
type SendMessageBatchRequestEntry struct {
	ID                      string
	MessageBody             string
	DelaySeconds            *int
	MessageAttributes       map[string]MessageAttributeValue
	MessageSystemAttributes map[string]MessageSystemAttributeValue
	MessageGroupID          *string
	MessageDeduplicationID  *string
}

// A SendMessageBatchOutput has the result of each entry.
type SendMessageBatchOutput struct {
	Successful []SendMessageBatchResultEntry
	Failed     []BatchResultErrorEntry
}

// A SendMessageBatchResultEntry is an entry that was accepted.
type SendMessageBatchResultEntry struct {
	ID                           string
	MessageID                    string
	MD5OfMessageBody             string
	MD5OfMessageAttributes       string
	MD5OfMessageSystemAttributes string
	SequenceNumber               string
}

// A BatchResultErrorEntry is an entry that failed; [Error.Entry] makes it.
type BatchResultErrorEntry struct {
	ID          string
	SenderFault bool
	Code        string
	Message     string
}

// A DeleteMessageBatchInput asks to delete up to ten messages.
type DeleteMessageBatchInput struct {
	QueueURL string
	Entries  []DeleteMessageBatchRequestEntry
}

// A DeleteMessageBatchRequestEntry is one of them.
type DeleteMessageBatchRequestEntry struct {
	ID            string
	ReceiptHandle string
}

// A DeleteMessageBatchOutput has the result of each entry.
type DeleteMessageBatchOutput struct {
	Successful []DeleteMessageBatchResultEntry
	Failed     []BatchResultErrorEntry
}

// A DeleteMessageBatchResultEntry is an entry that succeeded.
type DeleteMessageBatchResultEntry struct{ ID string }

// A ChangeMessageVisibilityBatchInput asks for more or less time for up to ten
// messages.
type ChangeMessageVisibilityBatchInput struct {
	QueueURL string
	Entries  []ChangeMessageVisibilityBatchRequestEntry
}

// A ChangeMessageVisibilityBatchRequestEntry is one of them.
type ChangeMessageVisibilityBatchRequestEntry struct {
	ID            string
	ReceiptHandle string
	// VisibilityTimeout is nil if the request has none.
	VisibilityTimeout *int
}

// A ChangeMessageVisibilityBatchOutput has the result of each entry.
type ChangeMessageVisibilityBatchOutput struct {
	Successful []ChangeMessageVisibilityBatchResultEntry
	Failed     []BatchResultErrorEntry
}

// A ChangeMessageVisibilityBatchResultEntry is an entry that succeeded.
type ChangeMessageVisibilityBatchResultEntry struct{ ID string }

func (in *SendMessageBatchInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.structures("Entries", "SendMessageBatchRequestEntry", listOf[SendMessageBatchRequestEntry](&in.Entries))
}

func (e *SendMessageBatchRequestEntry) members(m *members) {
	m.text("Id", &e.ID)
	m.required().text("MessageBody", &e.MessageBody)
	m.integer("DelaySeconds", &e.DelaySeconds)
	m.values("MessageAttributes", "MessageAttribute", &e.MessageAttributes)
	m.values("MessageSystemAttributes", "MessageSystemAttribute", &e.MessageSystemAttributes)
	m.optional("MessageGroupId", &e.MessageGroupID)
	m.optional("MessageDeduplicationId", &e.MessageDeduplicationID)
}

func (out *SendMessageBatchOutput) members(m *members) {
	m.structures("Successful", "SendMessageBatchResultEntry", listOf[SendMessageBatchResultEntry](&out.Successful))
	m.failed(&out.Failed)
}

func (e *SendMessageBatchResultEntry) members(m *members) {
	m.text("Id", &e.ID)
	m.text("MessageId", &e.MessageID)
	m.text("MD5OfMessageBody", &e.MD5OfMessageBody)
	m.text("MD5OfMessageAttributes", &e.MD5OfMessageAttributes)
	m.text("MD5OfMessageSystemAttributes", &e.MD5OfMessageSystemAttributes)
	m.text("SequenceNumber", &e.SequenceNumber)
}

func (e *BatchResultErrorEntry) members(m *members) {
	m.text("Id", &e.ID)
	m.boolean("SenderFault", &e.SenderFault)
	m.text("Code", &e.Code)
	m.text("Message", &e.Message)
}

func (in *DeleteMessageBatchInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.structures("Entries", "DeleteMessageBatchRequestEntry", listOf[DeleteMessageBatchRequestEntry](&in.Entries))
}

func (e *DeleteMessageBatchRequestEntry) members(m *members) {
	m.text("Id", &e.ID)
	m.required().text("ReceiptHandle", &e.ReceiptHandle)
}

func (out *DeleteMessageBatchOutput) members(m *members) {
	m.structures("Successful", "DeleteMessageBatchResultEntry", listOf[DeleteMessageBatchResultEntry](&out.Successful))
	m.failed(&out.Failed)
}

func (e *DeleteMessageBatchResultEntry) members(m *members) { m.text("Id", &e.ID) }

func (in *ChangeMessageVisibilityBatchInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.structures("Entries", "ChangeMessageVisibilityBatchRequestEntry", listOf[ChangeMessageVisibilityBatchRequestEntry](&in.Entries))
}

func (e *ChangeMessageVisibilityBatchRequestEntry) members(m *members) {
	m.text("Id", &e.ID)
	m.required().text("ReceiptHandle", &e.ReceiptHandle)
	m.integer("VisibilityTimeout", &e.VisibilityTimeout)
}

func (out *ChangeMessageVisibilityBatchOutput) members(m *members) {
	m.structures("Successful", "ChangeMessageVisibilityBatchResultEntry", listOf[ChangeMessageVisibilityBatchResultEntry](&out.Successful))
	m.failed(&out.Failed)
}

func (e *ChangeMessageVisibilityBatchResultEntry) members(m *members) { m.text("Id", &e.ID) }
