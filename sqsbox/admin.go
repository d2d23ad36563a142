package sqsbox

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/driver"
)

// ConfigureQueue creates the queue, or changes its attributes: StrictGroups makes a
// FIFO queue, which is called name.fifo at SQS and can be opened by either name;
// MaxDeliveries and DeadLetterTo, which go together, become its RedrivePolicy, and
// the dead-letter queue is created if it does not exist; RetainReady.Age, together
// with DropExpired, is its retention. Other settings are refused. A setting that SQS
// always bounds can be Off, which means the bound of SQS: with RetainReady.Age the
// longest retention.
//
// It blocks for a few requests; repeating it is safe. SQS may take a minute until
// new attributes are in force. Codes: ErrInvalid, ErrUnsupported (the field),
// ErrUnavailable (also for a minute after a queue of this name was deleted),
// ErrForbidden, ErrUnauthenticated, ErrClosed.
func (b *Backend) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	return driver.Annotate(b.configure(ctx, name, config), name, "configure")
}

func (b *Backend) configure(ctx context.Context, name string, config driver.Config) error {
	if err := b.check(ctx, name); err != nil {
		return err
	}
	if err := checkConfig(name, config); err != nil {
		return err
	}
	at, err := b.find(ctx, name)
	isNew := isCode(err, driver.ErrNotFound)
	if err != nil && !isNew {
		return err
	}
	if isNew {
		at.physical = physicalName(b.options.Prefix, name, config.StrictGroups)
	}
	fifo := strings.HasSuffix(at.physical, fifoSuffix)
	if config.StrictGroups && !fifo {
		return configError(driver.ErrUnsupported, "StrictGroups", "a standard queue cannot become a FIFO queue")
	}
	if config.DeadLetterTo != "" && config.MaxDeliveries == 0 && !isNew {
		current, err := b.attributes(ctx, at.url)
		if err != nil {
			return err
		}
		config.MaxDeliveries = readSettings(b, at.physical, current).config.MaxDeliveries
	}
	if config.DeadLetterTo != "" && config.MaxDeliveries <= 0 {
		return configError(driver.ErrUnsupported, "DeadLetterTo", "SQS dead-letters only by the number of deliveries: set MaxDeliveries")
	}
	if isNew && config.DeadLetterTo == name { // it must exist before a policy can name it
		if at, err = b.create(ctx, name, config.StrictGroups, nil); err != nil {
			return err
		}
		isNew = false
	}
	attributes, err := b.wanted(ctx, config, fifo)
	if err != nil {
		return err
	}
	if isNew {
		if attributes["RedrivePolicy"] == "" {
			delete(attributes, "RedrivePolicy")
		}
		at, err = b.create(ctx, name, config.StrictGroups, attributes)
	} else {
		_, err = b.client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: aws.String(at.url), Attributes: attributes}, OwnBodies)
		err = driverError(ctx, err)
	}
	if err != nil {
		return err
	}
	return b.refresh(ctx, at)
}

// wanted returns the attributes for config.
func (b *Backend) wanted(ctx context.Context, config driver.Config, fifo bool) (map[string]string, error) {
	attributes := map[string]string{"RedrivePolicy": ""}
	switch age := config.RetainReady.Age; age {
	case 0: // a new queue has the longest, an existing one keeps its own
	case driver.Off:
		attributes["MessageRetentionPeriod"] = seconds(longestRetention)
	default:
		attributes["MessageRetentionPeriod"] = seconds(age)
	}
	if config.DeadLetterTo == "" {
		return attributes, nil
	}
	arn, err := b.target(ctx, config.DeadLetterTo, fifo)
	if err != nil {
		return nil, err
	}
	policy, err := json.Marshal(redrivePolicy{Target: arn, MaxReceives: config.MaxDeliveries})
	attributes["RedrivePolicy"] = string(policy)
	return attributes, err
}

// target returns the ARN of a dead-letter queue, which must be of the same kind as the
// queues it serves. It is created if it does not exist.
func (b *Backend) target(ctx context.Context, name string, fifo bool) (arn string, err error) {
	at, err := b.find(ctx, name)
	if isCode(err, driver.ErrNotFound) {
		at, err = b.create(ctx, name, fifo, nil)
	}
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(at.physical, fifoSuffix) != fifo {
		return "", configError(driver.ErrUnsupported, "DeadLetterTo", "must be a FIFO queue for a FIFO queue, and a standard queue for a standard queue")
	}
	attributes, err := b.attributes(ctx, at.url)
	return attributes["QueueArn"], err
}

// refresh updates the settings of open handles.
func (b *Backend) refresh(ctx context.Context, at location) error {
	open := b.known(at.physical)
	if len(open) == 0 {
		return nil
	}
	attributes, err := b.attributes(ctx, at.url)
	if err != nil {
		return err
	}
	for _, q := range open {
		q.settings.Store(readSettings(b, at.physical, attributes))
	}
	return nil
}

// QueueConfig reads the attributes of a queue. The result includes the limits that SQS
// has for all queues. It blocks for a few requests. Codes: ErrInvalid, ErrNotFound,
// ErrClosed, ErrForbidden, ErrUnauthenticated, ErrUnavailable.
func (b *Backend) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	fail := func(err error) (driver.Config, error) {
		return driver.Config{}, driver.Annotate(err, name, "read configuration")
	}
	if err := b.check(ctx, name); err != nil {
		return fail(err)
	}
	at, err := b.find(ctx, name)
	if err != nil {
		return fail(err)
	}
	attributes, err := b.attributes(ctx, at.url)
	if err != nil {
		return fail(err)
	}
	return readSettings(b, at.physical, attributes).config, nil
}

// Queues lists the queues whose names begin with Options.Prefix, without it, in
// order. FIFO queues are listed with .fifo at the end. Names that were cut need a
// request each. Codes: ErrClosed, ErrForbidden, ErrUnauthenticated, ErrUnavailable.
func (b *Backend) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := b.list(ctx)
		if err != nil {
			yield("", driver.Annotate(err, "", "list queues"))
			return
		}
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

func (b *Backend) list(ctx context.Context) (names []string, err error) {
	if err := b.check(ctx, "list"); err != nil {
		return nil, err
	}
	input := &sqs.ListQueuesInput{MaxResults: aws.Int32(1000)} // without MaxResults there is no next page
	if b.options.Prefix != "" {
		input.QueueNamePrefix = aws.String(b.options.Prefix)
	}
	for {
		output, err := b.client.ListQueues(ctx, input, OwnBodies)
		if err != nil {
			return nil, driverError(ctx, err)
		}
		for _, url := range output.QueueUrls {
			name, ok, err := b.nameAt(ctx, url)
			if err != nil {
				return nil, err
			}
			if ok {
				names = append(names, name)
			}
		}
		if deref(output.NextToken) == "" {
			slices.Sort(names)
			return names, nil
		}
		input.NextToken = output.NextToken
	}
}

// nameAt returns the name of the queue at a URL. It reads a cut name from the tags.
func (b *Backend) nameAt(ctx context.Context, url string) (name string, ok bool, err error) {
	physical := url[strings.LastIndexByte(url, '/')+1:]
	if !isCut(physical) {
		name, ok = logicalName(b.options.Prefix, physical)
		return name, ok, nil
	}
	output, err := b.client.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: aws.String(url)}, OwnBodies)
	if err != nil {
		if err = driverError(ctx, err); isCode(err, driver.ErrNotFound) {
			return "", false, nil // deleted in the meantime
		}
		return "", false, err
	}
	name, ok = nameOfTags(output.Tags)
	return name, ok, nil
}

// DeleteQueue removes a queue with all messages in it. Receives that wait on it in
// this process return ErrNotFound; SQS itself takes up to a minute, and refuses a new
// queue of this name for as long. Codes: ErrInvalid, ErrNotFound, ErrClosed,
// ErrForbidden, ErrUnauthenticated, ErrUnavailable.
func (b *Backend) DeleteQueue(ctx context.Context, name string) error {
	return driver.Annotate(b.remove(ctx, name), name, "delete")
}

func (b *Backend) remove(ctx context.Context, name string) error {
	if err := b.check(ctx, name); err != nil {
		return err
	}
	at, err := b.find(ctx, name)
	if err != nil {
		return err
	}
	if _, err := b.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: aws.String(at.url)}, OwnBodies); err != nil {
		return driverError(ctx, err)
	}
	for _, q := range b.known(at.physical) {
		b.end(q, driver.ErrNotFound)
	}
	b.leases.forget(at.physical)
	b.local.forget(at.physical)
	return nil
}
