package sqswire

// A CreateQueueInput asks to create a queue, unless it exists with the same attributes.
type CreateQueueInput struct {
	// QueueName is nil if the request has none; an empty one is refused with a different error.
	QueueName  *string
	Attributes map[string]string
	Tags       map[string]string
}

// A CreateQueueOutput has the URL of the queue that was created or found.
type CreateQueueOutput struct{ QueueURL string }

// A DeleteQueueInput asks to delete a queue with all of its messages.
type DeleteQueueInput struct{ QueueURL string }

// A DeleteQueueOutput is empty.
type DeleteQueueOutput struct{}

// A GetQueueURLInput asks for the URL of a queue by its name.
type GetQueueURLInput struct {
	QueueName              string
	QueueOwnerAWSAccountID string
}

// A GetQueueURLOutput has the URL.
type GetQueueURLOutput struct{ QueueURL string }

// A ListQueuesInput asks for a page of the queues of an account.
type ListQueuesInput struct {
	QueueNamePrefix string
	MaxResults      *int
	NextToken       string
}

// A ListQueuesOutput is one page of queues.
type ListQueuesOutput struct {
	QueueURLs []string
	NextToken string
}

// A GetQueueAttributesInput asks for the attributes named; All stands for all.
type GetQueueAttributesInput struct {
	QueueURL       string
	AttributeNames []string
}

// A GetQueueAttributesOutput holds the attributes asked for.
type GetQueueAttributesOutput struct{ Attributes map[string]string }

// A SetQueueAttributesInput asks to change the attributes given.
type SetQueueAttributesInput struct {
	QueueURL   string
	Attributes map[string]string
}

// A SetQueueAttributesOutput is empty.
type SetQueueAttributesOutput struct{}

// A PurgeQueueInput asks to delete all messages of a queue.
type PurgeQueueInput struct{ QueueURL string }

// A PurgeQueueOutput is empty.
type PurgeQueueOutput struct{}

// A ListDeadLetterSourceQueuesInput asks which queues send their dead letters to
// this one.
type ListDeadLetterSourceQueuesInput struct {
	QueueURL   string
	MaxResults *int
	NextToken  string
}

// A ListDeadLetterSourceQueuesOutput is one page of them.
type ListDeadLetterSourceQueuesOutput struct {
	QueueURLs []string
	NextToken string
}

// A TagQueueInput asks to add tags to a queue.
type TagQueueInput struct {
	QueueURL string
	Tags     map[string]string
}

// A TagQueueOutput is empty.
type TagQueueOutput struct{}

// An UntagQueueInput asks to take tags off a queue.
type UntagQueueInput struct {
	QueueURL string
	// TagKeys is nil if the request has none; an empty list is refused with a different error.
	TagKeys []string
}

// An UntagQueueOutput is empty.
type UntagQueueOutput struct{}

// A ListQueueTagsInput asks for the tags of a queue.
type ListQueueTagsInput struct{ QueueURL string }

// A ListQueueTagsOutput holds them.
type ListQueueTagsOutput struct{ Tags map[string]string }

// An AddPermissionInput asks to let other accounts use a queue. The lists are nil if
// the request has none; empty ones are refused with a different error.
type AddPermissionInput struct {
	QueueURL      string
	Label         string
	AWSAccountIDs []string
	Actions       []string
}

// An AddPermissionOutput is empty.
type AddPermissionOutput struct{}

// A RemovePermissionInput asks to remove a permission that AddPermission added.
type RemovePermissionInput struct {
	QueueURL string
	Label    string
}

// A RemovePermissionOutput is empty.
type RemovePermissionOutput struct{}

func (in *CreateQueueInput) members(m *members) {
	m.required().optional("QueueName", &in.QueueName)
	m.attributes("Attributes", &in.Attributes)
	m.tags("tags", &in.Tags)
}

func (out *CreateQueueOutput) members(m *members) { m.text("QueueUrl", &out.QueueURL) }

func (in *DeleteQueueInput) members(m *members) { m.queueURL(&in.QueueURL) }

func (*DeleteQueueOutput) members(*members) {}

func (in *GetQueueURLInput) members(m *members) {
	m.required().text("QueueName", &in.QueueName)
	m.text("QueueOwnerAWSAccountId", &in.QueueOwnerAWSAccountID)
}

func (out *GetQueueURLOutput) members(m *members) { m.text("QueueUrl", &out.QueueURL) }

func (in *ListQueuesInput) members(m *members) {
	m.text("QueueNamePrefix", &in.QueueNamePrefix)
	m.integer("MaxResults", &in.MaxResults)
	m.text("NextToken", &in.NextToken)
}

func (out *ListQueuesOutput) members(m *members) {
	m.texts("QueueUrls", "QueueUrl", &out.QueueURLs)
	m.text("NextToken", &out.NextToken)
}

func (in *GetQueueAttributesInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.texts("AttributeNames", "AttributeName", &in.AttributeNames)
}

func (out *GetQueueAttributesOutput) members(m *members) {
	m.attributes("Attributes", &out.Attributes)
}

func (in *SetQueueAttributesInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.attributes("Attributes", &in.Attributes)
}

func (*SetQueueAttributesOutput) members(*members) {}

func (in *PurgeQueueInput) members(m *members) { m.queueURL(&in.QueueURL) }

func (*PurgeQueueOutput) members(*members) {}

func (in *ListDeadLetterSourceQueuesInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.integer("MaxResults", &in.MaxResults)
	m.text("NextToken", &in.NextToken)
}

// The lower case q is that of AWS.
func (out *ListDeadLetterSourceQueuesOutput) members(m *members) {
	m.texts("queueUrls", "QueueUrl", &out.QueueURLs)
	m.text("NextToken", &out.NextToken)
}

func (in *TagQueueInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.required().tags("Tags", &in.Tags)
}

func (*TagQueueOutput) members(*members) {}

func (in *UntagQueueInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.texts("TagKeys", "TagKey", &in.TagKeys)
}

func (*UntagQueueOutput) members(*members) {}

func (in *ListQueueTagsInput) members(m *members) { m.queueURL(&in.QueueURL) }

func (out *ListQueueTagsOutput) members(m *members) { m.tags("Tags", &out.Tags) }

func (in *AddPermissionInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.required().text("Label", &in.Label)
	m.texts("AWSAccountIds", "AWSAccountId", &in.AWSAccountIDs)
	m.texts("Actions", "ActionName", &in.Actions)
}

func (*AddPermissionOutput) members(*members) {}

func (in *RemovePermissionInput) members(m *members) {
	m.queueURL(&in.QueueURL)
	m.required().text("Label", &in.Label)
}

func (*RemovePermissionOutput) members(*members) {}
