package sqsapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/mailboxmq/mailbox/internal/spelling"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// A Declaration is a queue in the table sqs.queues of the daemon's configuration. It
// belongs to no tenant.
type Declaration struct {
	Name string
	// Attributes have the names and values of SQS.
	Attributes map[string]string
	Tags       map[string]string
}

// An attributeError is a declared attribute that is invalid. It says what is allowed,
// while clients of SQS get the messages of AWS.
type attributeError struct{ name, detail string }

func (e *attributeError) Error() string { return e.name + ": " + e.detail }

// check returns the declared settings, and the attributes without FifoQueue.
func (d *Declaration) check() (settings, map[string]string, error) {
	s := newSettings()
	attributes := maps.Clone(d.Attributes)
	if value, ok := attributes[attributeFIFO]; ok {
		if !fifoFlag.set(&s, value) {
			return s, nil, invalidDeclared(attributeFIFO, value, fifoFlag)
		}
		delete(attributes, attributeFIFO)
	}
	err := sqswire.CheckQueueName(d.Name, s.FIFO)
	if err == nil {
		err = s.checkDeclared(attributes)
	}
	if err == nil {
		err = s.set(attributes)
	}
	if err == nil && s.Redrive != "" {
		_, err = parseRedrivePolicy(s.Redrive)
	}
	if err == nil && s.RedriveAllow != "" {
		_, err = parseRedriveAllowPolicy(s.RedriveAllow)
	}
	if err == nil {
		err = checkTags(d.Name, d.Tags)
	}
	return s, attributes, err
}

// checkDeclared checks the name and the value of each attribute, in the order of the
// names.
func (s *settings) checkDeclared(attributes map[string]string) error {
	scratch := *s
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		attribute, known := queueAttributes[name]
		switch {
		case !known:
			names := append(slices.Sorted(maps.Keys(queueAttributes)), attributeFIFO, "tags")
			detail := "is not an attribute of SQS queues"
			if near := spelling.Nearest(name, names); near != "" {
				detail += "; did you mean " + near + "?"
			}
			return &attributeError{name, detail}
		case attribute.fifo && !s.FIFO:
			return &attributeError{name, "only FIFO queues have it; set FifoQueue = true"}
		case !attribute.set(&scratch, attributes[name]):
			return invalidDeclared(name, attributes[name], attribute)
		}
	}
	return nil
}

func invalidDeclared(name, value string, attribute queueAttribute) error {
	return &attributeError{name, fmt.Sprintf("invalid value %.100q; want %s", value, attribute.want)}
}

// Check returns an error that names the key in the configuration, and what is allowed.
// It does not look at other queues.
func (d *Declaration) Check() error {
	_, _, err := d.check()
	return d.explain(err)
}

// explain adds the key in the configuration to an error.
func (d *Declaration) explain(err error) error {
	if err == nil {
		return nil
	}
	key := d.Name
	if sqswire.CheckLabel(key) != nil { // not a bare key of TOML
		key = strconv.Quote(key)
	}
	if e, ok := errors.AsType[*attributeError](err); ok {
		return fmt.Errorf("sqs.queues.%s.%w", key, e)
	}
	if e, ok := errors.AsType[*sqswire.Error](err); ok {
		return fmt.Errorf("sqs.queues.%s: %s", key, e.Message)
	}
	return fmt.Errorf("sqs.queues.%s: %w", key, err)
}

// Declare creates the declared queues, and sets the declared attributes and tags of
// those that exist; their other attributes and tags stay. It blocks on the backend. An
// error names the queue; those before it were created.
func (s *Service) Declare(ctx context.Context, queues []Declaration) error {
	caller, err := s.daemon("")
	if err != nil {
		return err
	}
	r := &request{service: s, caller: caller, account: noAccount, region: defaultRegion, action: sqswire.CreateQueue}
	// Dead-letter queues come first: others refer to them.
	ordered := slices.Clone(queues)
	slices.SortStableFunc(ordered, func(a, b Declaration) int {
		return len(a.Attributes[attributeRedrive]) - len(b.Attributes[attributeRedrive])
	})
	for i := range ordered {
		if err := r.declare(ctx, &ordered[i]); err != nil {
			return ordered[i].explain(err)
		}
	}
	return nil
}

func (r *request) declare(ctx context.Context, d *Declaration) error {
	wanted, attributes, err := d.check()
	if err != nil {
		return err
	}
	create := &sqswire.CreateQueueInput{QueueName: &d.Name, Attributes: maps.Clone(attributes), Tags: d.Tags}
	if wanted.FIFO {
		if create.Attributes == nil {
			create.Attributes = make(map[string]string)
		}
		create.Attributes[attributeFIFO] = "true"
	}
	_, err = r.createQueue(ctx, create)
	if err != nil && !errors.Is(err, sqswire.QueueNameExists) {
		return err
	}
	if err != nil {
		if _, err := r.setQueueAttributes(ctx, &sqswire.SetQueueAttributesInput{QueueURL: d.Name, Attributes: attributes}); err != nil {
			return err
		}
	}
	if len(d.Tags) > 0 {
		_, err := r.tagQueue(ctx, &sqswire.TagQueueInput{QueueURL: d.Name, Tags: d.Tags})
		return err
	}
	return nil
}

// QueueARN returns the ARN of a queue of no tenant, for declarations that give only the
// name of the dead-letter queue.
func QueueARN(name string) string { return arnOf(defaultRegion, noAccount, name) }
