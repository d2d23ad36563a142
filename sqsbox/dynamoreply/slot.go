package dynamoreply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/mailboxmq/mailbox/driver"
)

// names returns placeholders for attributes in expressions, where some attribute
// names are reserved words.
func names(attributes ...string) map[string]string {
	byName := make(map[string]string, len(attributes))
	for _, attribute := range attributes {
		byName["#"+attribute] = attribute
	}
	return byName
}

// returnFound makes DynamoDB return the item if a condition does not hold. Servers
// that do not support this get a second request.
const returnFound = types.ReturnValuesOnConditionCheckFailureAllOld

// conditionError reports whether err says that a condition did not hold.
func conditionError(err error) (*types.ConditionalCheckFailedException, bool) {
	return errors.AsType[*types.ConditionalCheckFailedException](err)
}

// current returns the slot that did not meet a condition, as DynamoDB has it.
func (s *store) current(ctx context.Context, op, id string, failed *types.ConditionalCheckFailedException) (record, error) {
	if len(failed.Item) > 0 {
		return s.read(op, id, failed.Item, s.clock.now())
	}
	return s.fetch(ctx, op, id)
}

// Create makes a pending slot that expires after ttl. It blocks on I/O. Codes:
// ErrConflict, ErrInvalid, and those of store.
func (s *store) Create(ctx context.Context, id string, ttl time.Duration) error {
	if err := driver.CheckSlot(id, ttl); err != nil {
		return err
	}
	now, err := s.now(ctx, opCreate, id)
	if err != nil {
		return err
	}
	maker := newMark()
	_, err = call(ctx, s, request{op: opCreate, id: id}, s.client.PutItem, &dynamodb.PutItemInput{
		TableName: &s.table, Item: newItem(id, maker, now, ttl),
		ConditionExpression: new("attribute_not_exists(#id)"), ExpressionAttributeNames: names(attributeID),
		ReturnValuesOnConditionCheckFailure: returnFound,
	})
	failed, taken := conditionError(err)
	if !taken {
		return err
	}
	found, err := s.current(ctx, opCreate, id, failed)
	switch {
	case errors.Is(err, driver.ErrNotFound): // it existed, and was removed since
	case err != nil:
		return err
	case found.maker == maker: // created by our own attempt whose response was lost
		return nil
	}
	return driver.SlotError(opCreate, id, driver.ErrConflict)
}

// Resolve stores the answer, once: only a pending slot can be resolved. Waits in
// this process return at once, others at their next read. It blocks on I/O. Codes:
// ErrReplyAlreadySent, ErrReplyCancelled, ErrReplyExpired, ErrNotFound,
// ErrTooLarge, and those of store.
func (s *store) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	if size := len(answer.Body) + len(answer.Failure) + len(answer.FailureKind); size > maxAnswerBytes {
		large := driver.SlotError(opResolve, id, driver.ErrTooLarge)
		large.Field, large.Detail = "Body", fmt.Sprintf("%d bytes, at most %d are allowed in DynamoDB", size, maxAnswerBytes)
		return large
	}
	writer := newMark()
	update, values := "SET #state = :state, #resolved = :now, #writer = :writer", item{
		":state": text(string(driver.SlotResolved)), ":writer": text(writer),
	}
	written := names(attributeState, attributeResolved, attributeWriter, attributeExpires)
	// Empty values are left out: a missing attribute means the same, and not every
	// server accepts empty ones.
	for _, part := range []struct {
		attribute string
		value     types.AttributeValue
		empty     bool
	}{
		{attributeBody, &types.AttributeValueMemberB{Value: answer.Body}, len(answer.Body) == 0},
		{attributeFailure, text(answer.Failure), answer.Failure == ""},
		{attributeKind, text(answer.FailureKind), answer.FailureKind == ""},
	} {
		if !part.empty {
			update += fmt.Sprintf(", #%[1]s = :%[1]s", part.attribute)
			values[":"+part.attribute], written["#"+part.attribute] = part.value, part.attribute
		}
	}
	return s.write(ctx, id, &dynamodb.UpdateItemInput{
		UpdateExpression: &update, ExpressionAttributeNames: written, ExpressionAttributeValues: values,
	}, opResolve, func(found record) bool { return found.writer == writer })
}

// Cancel gives up a pending slot: no answer can be stored any more. Waits in this
// process return at once, others at their next read. It blocks on I/O. Codes:
// ErrReplyAlreadySent, ErrReplyExpired, ErrNotFound, and those of store.
func (s *store) Cancel(ctx context.Context, id string) error {
	return s.write(ctx, id, &dynamodb.UpdateItemInput{
		UpdateExpression:          new("SET #state = :state"),
		ExpressionAttributeNames:  names(attributeState, attributeExpires),
		ExpressionAttributeValues: item{":state": text(string(driver.SlotCancelled))},
	}, opCancel, func(found record) bool { return found.slot.State == driver.SlotCancelled })
}

// maxWrites bounds how often a write starts again because the slot had been
// replaced when it was read.
const maxWrites = 5

// write makes a slot write-once: it updates the item on the condition that the slot
// is pending and has not expired. done reports whether a slot that is not pending
// was written by this very call, in an attempt whose response was lost.
func (s *store) write(ctx context.Context, id string, update *dynamodb.UpdateItemInput, op string, done func(record) bool) error {
	update.TableName, update.Key = &s.table, keyOf(id)
	update.ConditionExpression = new("#state = :pending AND #expires > :now")
	update.ReturnValuesOnConditionCheckFailure = returnFound
	update.ExpressionAttributeValues[":pending"] = text(string(driver.SlotPending))
	for range maxWrites {
		now, err := s.now(ctx, op, id)
		if err != nil {
			return err
		}
		update.ExpressionAttributeValues[":now"] = number(now.UnixNano())
		_, err = call(ctx, s, request{op: op, id: id}, s.client.UpdateItem, update)
		failed, refused := conditionError(err)
		if !refused {
			s.watcher.nudge(id)
			return err
		}
		found, err := s.current(ctx, op, id, failed)
		if err != nil {
			return err
		}
		if done(found) {
			s.watcher.nudge(id)
			return nil
		}
		if found.slot.State != driver.SlotPending {
			return found.slot.State.WriteError(op, id)
		}
		// It was removed and created again in between, or the clock was corrected.
	}
	unstable := driver.SlotError(op, id, driver.ErrUnavailable)
	unstable.Detail = fmt.Sprintf("the slot was removed and created again during each of %d attempts", maxWrites)
	return unstable
}

// Get returns the current slot. It blocks on I/O. Codes: ErrNotFound,
// ErrIntegrity, and those of store.
func (s *store) Get(ctx context.Context, id string) (driver.Slot, error) {
	found, err := s.fetch(ctx, opGet, id)
	return found.slot, err
}

// Consume returns a slot that is not pending and removes it. It blocks on I/O.
// A request without a response is not repeated: it may have removed the slot, and
// the repetition would report that another caller took the answer. Codes: as Get.
func (s *store) Consume(ctx context.Context, id string) (driver.Slot, error) {
	for range maxWrites {
		now, err := s.now(ctx, opConsume, id)
		if err != nil {
			return driver.Slot{}, err
		}
		out, err := call(ctx, s, request{op: opConsume, id: id, once: true}, s.client.DeleteItem, &dynamodb.DeleteItemInput{
			TableName: &s.table, Key: keyOf(id), ReturnValues: types.ReturnValueAllOld,
			ConditionExpression:      new("attribute_exists(#id) AND (#state <> :pending OR #expires <= :now)"),
			ExpressionAttributeNames: names(attributeID, attributeState, attributeExpires),
			ExpressionAttributeValues: item{
				":pending": text(string(driver.SlotPending)), ":now": number(now.UnixNano()),
			},
			ReturnValuesOnConditionCheckFailure: returnFound,
		})
		if err == nil {
			s.watcher.nudge(id)
			found, err := s.read(opConsume, id, out.Attributes, now) // as it was when removed
			return found.slot, err
		}
		failed, refused := conditionError(err)
		if !refused {
			return driver.Slot{}, err
		}
		found, err := s.current(ctx, opConsume, id, failed)
		if err != nil || found.slot.State == driver.SlotPending {
			return found.slot, err
		}
		// It was decided after the condition was checked.
	}
	unstable := driver.SlotError(opConsume, id, driver.ErrUnavailable)
	unstable.Detail = fmt.Sprintf("the slot changed during each of %d attempts", maxWrites)
	return driver.Slot{}, unstable
}

// Delete removes the slot. It blocks on I/O. Codes: those of store.
func (s *store) Delete(ctx context.Context, id string) error {
	_, err := call(ctx, s, request{op: opDelete, id: id}, s.client.DeleteItem,
		&dynamodb.DeleteItemInput{TableName: &s.table, Key: keyOf(id)})
	s.watcher.nudge(id)
	return err
}
