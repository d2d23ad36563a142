package sqsapi

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// createQueue creates a queue, or finds one with the same attributes.
func (r *request) createQueue(ctx context.Context, in *sqswire.CreateQueueInput) (sqswire.Output, error) {
	name := *in.QueueName
	if name == "" {
		return nil, sqswire.InvalidParameterValue.Withf("Queue name cannot be empty")
	}
	wanted := newSettings()
	wanted.SSE = r.service.options.ManagedSSE
	attributes := maps.Clone(in.Attributes)
	if value, ok := attributes[attributeFIFO]; ok {
		if value != "true" && value != "True" && value != "TRUE" {
			return nil, sqswire.InvalidAttributeName.Withf("Unknown Attribute %s.", attributeFIFO)
		}
		wanted.FIFO = true
		delete(attributes, attributeFIFO)
	}
	if err := sqswire.CheckQueueName(name, wanted.FIFO); err != nil {
		return nil, err
	}
	if err := r.caller.May(ctx, capability.OpAdmin, name); err != nil {
		return nil, err
	}
	if err := wanted.set(attributes); err != nil {
		return nil, err
	}
	if err := checkTags(name, in.Tags); err != nil {
		return nil, err
	}
	place := broker.TenantQueue{Tenant: r.caller.Tenant(), Queue: name}
	defer r.service.queues.lock(place)()
	if found, err := r.service.load(ctx, place); err == nil {
		if other := found.differs(&wanted, attributes); other != "" {
			return nil, sqswire.QueueNameExists.Withf("A queue already exists with the same name and a different value for attribute %s", other)
		}
		return &sqswire.CreateQueueOutput{QueueURL: r.url(name)}, nil
	} else if !errors.Is(err, sqswire.QueueDoesNotExist) {
		return nil, err
	}
	if err := r.service.mayCreate(place); err != nil {
		return nil, err
	}
	if err := r.checkPolicies(ctx, name, &wanted, attributes); err != nil {
		return nil, err
	}
	if len(in.Tags) > 0 {
		wanted.Tags = maps.Clone(in.Tags)
	}
	wanted.Created = time.Now().Unix()
	wanted.Modified = wanted.Created
	made := &queue{TenantQueue: place, settings: wanted, config: wanted.newConfig()}
	err := r.service.store(ctx, r.caller, made)
	if lacksFairGroups(err) {
		made.config.FairGroups = false
		err = r.service.store(ctx, r.caller, made)
	}
	if err != nil {
		return nil, tooMuch(err)
	}
	return &sqswire.CreateQueueOutput{QueueURL: r.url(name)}, nil
}

// lacksFairGroups reports whether the backend has no fair groups.
func lacksFairGroups(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && e.Code == driver.ErrUnsupported && e.Field == "FairGroups"
}

// tooMuch translates the error for settings that do not fit into the annotation.
func tooMuch(err error) error {
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Code == driver.ErrInvalid && e.Field == "Annotation" {
		return sqswire.OverLimit.Withf("The attributes, tags and policies of the queue are too long together.")
	}
	return err
}

// deleteQueue removes a queue with all messages.
func (r *request) deleteQueue(ctx context.Context, in *sqswire.DeleteQueueInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	defer r.service.queues.lock(q.TenantQueue)()
	err = r.caller.Delete(ctx, q.Queue)
	r.service.queues.forget(q.TenantQueue)
	if err != nil {
		return nil, err
	}
	r.service.tasks.stop(q.TenantQueue)
	r.service.cooldowns.deleted(q.TenantQueue)
	return new(sqswire.DeleteQueueOutput), nil
}

// getQueueURL returns the URL of an existing queue.
func (r *request) getQueueURL(ctx context.Context, in *sqswire.GetQueueURLInput) (sqswire.Output, error) {
	if in.QueueName == "" {
		return nil, missing("QueueName")
	}
	if in.QueueOwnerAWSAccountID != "" && in.QueueOwnerAWSAccountID != r.account {
		return nil, sqswire.QueueDoesNotExist.Default()
	}
	q, err := r.find(ctx, in.QueueName)
	if err != nil {
		return nil, err
	}
	return &sqswire.GetQueueURLOutput{QueueURL: r.url(q.Queue)}, nil
}

// getQueueAttributes returns attributes of a queue. Counting needs a token for it.
func (r *request) getQueueAttributes(ctx context.Context, in *sqswire.GetQueueAttributesInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	var stats driver.Stats
	if needsCount(in.AttributeNames) {
		if stats, err = r.caller.Stats(ctx, q.Queue); err != nil {
			return nil, err
		}
	}
	attributes, err := r.attributesOf(q, in.AttributeNames, &stats)
	if err != nil {
		return nil, err
	}
	return &sqswire.GetQueueAttributesOutput{Attributes: attributes}, nil
}

// setQueueAttributes changes attributes of a queue.
func (r *request) setQueueAttributes(ctx context.Context, in *sqswire.SetQueueAttributesInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	if len(in.Attributes) == 0 {
		return nil, missing("Attribute.Name")
	}
	if err := r.caller.May(ctx, capability.OpAdmin, q.Queue); err != nil {
		return nil, err
	}
	attributes, err := q.withoutKind(in.Attributes)
	if err != nil {
		return nil, err
	}
	if err := r.checkPolicies(ctx, q.Queue, &q.settings, attributes); err != nil {
		return nil, err
	}
	err = r.edit(ctx, q.TenantQueue, func(s *settings) error { return s.set(attributes) })
	if err != nil {
		return nil, err
	}
	return new(sqswire.SetQueueAttributesOutput), nil
}

// edit changes the settings of a queue for a caller that may administer it, and sets the
// time of the change.
func (r *request) edit(ctx context.Context, place broker.TenantQueue, change func(s *settings) error) error {
	_, err := r.service.change(ctx, r.caller, place, func(q *queue) error {
		if err := change(&q.settings); err != nil {
			return err
		}
		q.Modified = time.Now().Unix()
		return nil
	})
	return tooMuch(err)
}

// purgeQueue removes all messages of a queue.
func (r *request) purgeQueue(ctx context.Context, in *sqswire.PurgeQueueInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := r.service.mayPurge(q.TenantQueue); err != nil {
		return nil, err
	}
	purge := r.caller.Purge
	if q.FIFO {
		purge = r.caller.PurgeAndForget
	}
	if _, err := purge(ctx, q.Queue); err != nil {
		return nil, err
	}
	r.service.cooldowns.purged(q.TenantQueue)
	return new(sqswire.PurgeQueueOutput), nil
}
