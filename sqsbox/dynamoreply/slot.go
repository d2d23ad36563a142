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

// names stand for attributes in expressions, where some of them are reserved
// words.
func names(attributes ...string) map[string]string {
	byName := make(map[string]string, len(attributes))
	for _, attribute := range attributes {
		byName["#"+attribute] = attribute
	}
	return byName
}

// whileLooking makes DynamoDB show the item if a condition does not hold. Those
// that do not know this are asked in a second request.
const whileLooking = types.ReturnValuesOnConditionCheckFailureAllOld

// conditionError returns the error of a condition that did not hold.
func conditionError(err error) (*types.ConditionalCheckFailedException, bool) {
	return errors.AsType[*types.ConditionalCheckFailedException](err)
}

// current returns the slot that did not meet a condition.
func (s *Store) current(ctx context.Context, op, id string, failed *types.ConditionalCheckFailedException) (record, error) {
	if len(failed.Item) > 0 {
		return s.read(op, id, failed.Item, s.clock.now())
	}
	return s.fetch(ctx, op, id)
}

// Create makes a pending slot that expires after ttl. It blocks on I/O. Codes:
// ErrConflict, ErrInvalid, and those of Store.
func (s *Store) Create(ctx context.Context, id string, ttl time.Duration) error {
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
		ReturnValuesOnConditionCheckFailure: whileLooking,
	})
	failed, taken := conditionError(err)
	if !taken {
		return err
	}
	found, err := s.current(ctx, opCreate, id, failed)
	switch {
	case errors.Is(err, driver.ErrNotFound): // and removed just now
	case err != nil:
		return err
	case found.maker == maker: // by an attempt whose answer got lost
		return nil
	}
	return driver.SlotError(opCreate, id, driver.ErrConflict)
}

// Resolve stores the answer. Those who wait in this process are woken, and
// others see it when they look. It blocks on I/O. Codes: ErrReplyAlreadySent,
// ErrReplyCancelled, ErrReplyExpired, ErrNotFound, ErrTooLarge, and those of
// Store.
func (s *Store) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	if size := len(answer.Body) + len(answer.Failure) + len(answer.FailureKind); size > MaxAnswerBytes {
		large := driver.SlotError(opResolve, id, driver.ErrTooLarge)
		large.Field, large.Detail = "Body", fmt.Sprintf("%d bytes, at most %d are allowed in DynamoDB", size, MaxAnswerBytes)
		return large
	}
	writer := newMark()
	update, values := "SET #state = :state, #resolved = :now, #writer = :writer", item{
		":state": text(string(driver.SlotResolved)), ":writer": text(writer),
	}
	written := names(attributeState, attributeResolved, attributeWriter, attributeExpires)
	// Empty values are left out: they mean the same, and not every table takes them.
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

// Cancel says that nobody waits any more. Those who do in this process are
// woken, and others see it when they look. It blocks on I/O. Codes:
// ErrReplyAlreadySent, ErrReplyExpired, ErrNotFound, and those of Store.
func (s *Store) Cancel(ctx context.Context, id string) error {
	return s.write(ctx, id, &dynamodb.UpdateItemInput{
		UpdateExpression:          new("SET #state = :state"),
		ExpressionAttributeNames:  names(attributeState, attributeExpires),
		ExpressionAttributeValues: item{":state": text(string(driver.SlotCancelled))},
	}, opCancel, func(found record) bool { return found.slot.State == driver.SlotCancelled })
}

// maxWrites bounds how often a write is begun anew because the slot was another
// one when it was looked at.
const maxWrites = 5

// write changes a pending slot. Done tells whether a slot that is not pending is
// as it was to become.
func (s *Store) write(ctx context.Context, id string, update *dynamodb.UpdateItemInput, op string, done func(record) bool) error {
	update.TableName, update.Key = &s.table, keyOf(id)
	update.ConditionExpression = new("#state = :pending AND #expires > :now")
	update.ReturnValuesOnConditionCheckFailure = whileLooking
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
		// It was removed and made anew in between, or the clock was set right.
	}
	restless := driver.SlotError(op, id, driver.ErrUnavailable)
	restless.Detail = "the slot was made anew again and again"
	return restless
}

// Get returns the slot as it is. It blocks on I/O. Codes: ErrNotFound,
// ErrIntegrity, and those of Store.
func (s *Store) Get(ctx context.Context, id string) (driver.Slot, error) {
	found, err := s.fetch(ctx, opGet, id)
	return found.slot, err
}

// Consume returns a slot that is not pending and removes it. It blocks on I/O.
// It is sent only once if nobody knows whether it was done, because repeating it
// would find nothing, and say that somebody else has the answer. Codes: as Get.
func (s *Store) Consume(ctx context.Context, id string) (driver.Slot, error) {
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
			ReturnValuesOnConditionCheckFailure: whileLooking,
		})
		if err == nil {
			s.watcher.nudge(id)
			found, err := s.read(opConsume, id, out.Attributes, now) // as it was then
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
		// It is pending no more, since a moment ago.
	}
	restless := driver.SlotError(opConsume, id, driver.ErrUnavailable)
	restless.Detail = "the slot changed again and again"
	return driver.Slot{}, restless
}

// Delete removes the slot. It blocks on I/O. Codes: those of Store.
func (s *Store) Delete(ctx context.Context, id string) error {
	_, err := call(ctx, s, request{op: opDelete, id: id}, s.client.DeleteItem,
		&dynamodb.DeleteItemInput{TableName: &s.table, Key: keyOf(id)})
	s.watcher.nudge(id)
	return err
}
