package sqsapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// A Declaration is a queue that is to be there when the daemon serves. It is one of
// no tenant.
type Declaration struct {
	Name string
	// Attributes have the names and values of SQS.
	Attributes map[string]string
	Tags       map[string]string
}

// check returns the settings that are declared.
func (d *Declaration) check() (settings, map[string]string, error) {
	s := newSettings()
	attributes := maps.Clone(d.Attributes)
	if value, ok := attributes[attributeFIFO]; ok {
		if !fifoFlag.set(&s, value) {
			return s, nil, invalidAttribute(attributeFIFO)
		}
		delete(attributes, attributeFIFO)
	}
	err := sqswire.CheckQueueName(d.Name, s.FIFO)
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

// Check returns an error that says in a sentence what is wrong with a declaration,
// as far as that can be said without looking at other queues.
func (d *Declaration) Check() error {
	_, _, err := d.check()
	return d.explain(err)
}

func (d *Declaration) explain(err error) error {
	if e, ok := errors.AsType[*sqswire.Error](err); ok {
		return fmt.Errorf("the queue %s: %s", d.Name, e.Message)
	}
	if err != nil {
		return fmt.Errorf("the queue %s: %w", d.Name, err)
	}
	return nil
}

// Declare makes the queues that are declared, and gives those that are there the
// attributes and tags that are declared; others that they have stay. It blocks on
// the backend. An error names the queue; those before it were made.
func (s *Service) Declare(ctx context.Context, queues []Declaration) error {
	caller, err := s.daemon("")
	if err != nil {
		return err
	}
	r := &request{service: s, caller: caller, account: noAccount, region: defaultRegion, action: sqswire.CreateQueue}
	// Queues for dead letters come first: others refer to them.
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

// QueueARN is the ARN of a queue of no tenant, for declarations that name the queue
// of dead letters simply by its name.
func QueueARN(name string) string { return arnOf(defaultRegion, noAccount, name) }
