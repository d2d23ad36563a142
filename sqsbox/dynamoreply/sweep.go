package dynamoreply

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// sweepConcurrency is how many slots Sweep removes at the same time.
const sweepConcurrency = 8

// Expired lists up to limit ids of expired slots. It blocks on I/O, and scans the
// table from its beginning until it has found enough: an index would make every
// write dearer, and DynamoDB removes expired items anyway. Codes: ErrInvalid, and
// those of store.
func (s *store) Expired(ctx context.Context, limit int) ([]string, error) {
	if err := checkLimit(opExpired, limit); err != nil {
		return nil, err
	}
	var ids []string
	err := s.scanExpired(ctx, opExpired, func(found []string) (bool, error) {
		ids = append(ids, found...)
		return len(ids) < limit, nil
	})
	if err != nil {
		return nil, err
	}
	return ids[:min(len(ids), limit)], nil
}

// Sweep removes up to limit expired slots, and finds them as Expired does. It
// blocks on I/O. removed is right even if there is an error. Codes: ErrInvalid,
// and those of store.
func (s *store) Sweep(ctx context.Context, limit int) (removed int, err error) {
	if err := checkLimit(opSweep, limit); err != nil {
		return 0, err
	}
	err = s.scanExpired(ctx, opSweep, func(found []string) (bool, error) {
		for len(found) > 0 && removed < limit {
			n := min(len(found), limit-removed, sweepConcurrency)
			gone, err := s.removeExpired(ctx, found[:n])
			removed += gone
			if err != nil {
				return false, err
			}
			found = found[n:]
		}
		return removed < limit, nil
	})
	return removed, err
}

// scanExpired calls take with the ids of expired slots, page by page, until take
// returns false.
func (s *store) scanExpired(ctx context.Context, op string, take func(ids []string) (more bool, err error)) error {
	now, err := s.now(ctx, op, "")
	if err != nil {
		return err
	}
	scan := &dynamodb.ScanInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true),
		FilterExpression: new("#expires <= :now"), ProjectionExpression: new("#id"),
		ExpressionAttributeNames:  names(attributeID, attributeExpires),
		ExpressionAttributeValues: item{":now": number(now.UnixNano())},
	}
	for {
		page, err := call(ctx, s, request{op: op}, s.client.Scan, scan)
		if err != nil {
			return err
		}
		var ids []string
		for _, found := range page.Items {
			if id, ok := found[attributeID].(*types.AttributeValueMemberS); ok {
				ids = append(ids, id.Value)
			}
		}
		if more, err := take(ids); !more || err != nil {
			return err
		}
		if len(page.LastEvaluatedKey) == 0 {
			return nil
		}
		scan.ExclusiveStartKey = page.LastEvaluatedKey
	}
}

// removeExpired removes slots concurrently, and returns how many it removed. It
// does not count slots that another caller has removed, and maybe created again,
// in the meantime.
func (s *store) removeExpired(ctx context.Context, ids []string) (removed int, err error) {
	now := s.clock.now()
	var group sync.WaitGroup
	var mu sync.Mutex // guards removed and err
	for _, id := range ids {
		group.Go(func() {
			_, failed := call(ctx, s, request{op: opSweep, id: id}, s.client.DeleteItem, &dynamodb.DeleteItemInput{
				TableName: &s.table, Key: keyOf(id),
				ConditionExpression: new("#expires <= :now"), ExpressionAttributeNames: names(attributeExpires),
				ExpressionAttributeValues: item{":now": number(now.UnixNano())},
			})
			mu.Lock()
			defer mu.Unlock()
			if _, gone := conditionError(failed); gone {
				return
			}
			if failed != nil {
				err = failed
				return
			}
			removed++
		})
	}
	group.Wait()
	return removed, err
}
