package dynamoreply

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/mailboxmq/mailbox/driver"
)

// The attributes of an item. Times are nanoseconds since 1970, because conditions
// compare them; ttl is in seconds, because DynamoDB requires that.
const (
	attributeID       = "id"
	attributeState    = "state" // pending, resolved or cancelled; never expired
	attributeCreated  = "created"
	attributeExpires  = "expires"
	attributeResolved = "resolved"
	attributeBody     = "body"
	attributeFailure  = "failure"
	attributeKind     = "kind"
	attributeTTL      = "ttl"
	// The marks of the calls that created and wrote the slot. With them a call
	// recognizes the write of an earlier attempt whose response was lost.
	attributeMaker  = "maker"
	attributeWriter = "writer"
)

// lingerExpired is how long an expired slot stays at least, so that readers get
// ErrReplyExpired instead of ErrNotFound.
const lingerExpired = time.Minute

type item = map[string]types.AttributeValue

// A record is a slot as an item holds it.
type record struct {
	slot   driver.Slot
	maker  string
	writer string
}

func text(value string) types.AttributeValue { return &types.AttributeValueMemberS{Value: value} }

func number(value int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(value, 10)}
}

func keyOf(id string) item { return item{attributeID: text(id)} }

// newMark returns a random text that identifies one call.
func newMark() string {
	var mark [12]byte
	for i := range mark {
		mark[i] = byte(rand.Uint32())
	}
	return hex.EncodeToString(mark[:])
}

// newItem returns the item of a pending slot.
func newItem(id, maker string, now time.Time, ttl time.Duration) item {
	expires := now.Add(ttl)
	gone := expires.Add(lingerExpired + time.Second - 1) // rounded up
	return item{
		attributeID: text(id), attributeState: text(string(driver.SlotPending)), attributeMaker: text(maker),
		attributeCreated: number(now.UnixNano()), attributeExpires: number(expires.UnixNano()),
		attributeTTL: number(gone.Unix()),
	}
}

// readItem decodes an item as of a time. It is not ok if the item was not written
// by this package.
func readItem(found item, at time.Time) (r record, ok bool) {
	read := reader{found: found, ok: true}
	r.slot.ID = read.text(attributeID, true)
	r.slot.State = driver.SlotState(read.text(attributeState, true))
	r.slot.CreatedAt, r.slot.ExpiresAt = read.time(attributeCreated), read.time(attributeExpires)
	r.maker, r.writer = read.text(attributeMaker, true), read.text(attributeWriter, false)
	switch r.slot.State {
	case driver.SlotResolved:
		r.slot.ResolvedAt = read.time(attributeResolved)
		r.slot.Answer = driver.Answer{
			Body:    read.bytes(attributeBody),
			Failure: read.text(attributeFailure, false), FailureKind: read.text(attributeKind, false),
		}
	case driver.SlotPending, driver.SlotCancelled:
	default:
		read.ok = false
	}
	return r.at(at), read.ok
}

// at returns the record as of a time: past its end a slot is expired, whatever its
// state was before.
func (r record) at(now time.Time) record {
	if !now.Before(r.slot.ExpiresAt) {
		r.slot.State, r.slot.Answer, r.slot.ResolvedAt = driver.SlotExpired, driver.Answer{}, time.Time{}
	}
	return r
}

// A reader decodes attributes; ok turns false at the first one that is wrong.
type reader struct {
	found item
	ok    bool
}

func (r *reader) text(name string, needed bool) string {
	switch value := r.found[name].(type) {
	case *types.AttributeValueMemberS:
		return value.Value
	case nil:
		r.ok = r.ok && !needed
	default:
		r.ok = false
	}
	return ""
}

func (r *reader) time(name string) time.Time {
	value, isNumber := r.found[name].(*types.AttributeValueMemberN)
	if !isNumber {
		r.ok = false
		return time.Time{}
	}
	nanoseconds, err := strconv.ParseInt(value.Value, 10, 64)
	r.ok = r.ok && err == nil
	return time.Unix(0, nanoseconds).UTC()
}

func (r *reader) bytes(name string) []byte {
	switch value := r.found[name].(type) {
	case *types.AttributeValueMemberB:
		return value.Value
	case nil: // an empty body is not stored
	default:
		r.ok = false
	}
	return nil
}

// fetch reads a slot. Codes: ErrNotFound, ErrIntegrity.
func (s *store) fetch(ctx context.Context, op, id string) (record, error) {
	out, err := call(ctx, s, request{op: op, id: id}, s.client.GetItem, &dynamodb.GetItemInput{
		TableName: &s.table, Key: keyOf(id), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return record{}, err
	}
	return s.read(op, id, out.Item, s.clock.now())
}

// read decodes the item of a slot, as of a time. Codes: ErrNotFound, ErrIntegrity.
func (s *store) read(op, id string, found item, at time.Time) (record, error) {
	if len(found) == 0 {
		return record{}, driver.SlotError(op, id, driver.ErrNotFound)
	}
	r, ok := readItem(found, at)
	if !ok {
		damaged := driver.SlotError(op, id, driver.ErrIntegrity)
		damaged.Detail = "the item in table " + s.table + " is not a reply slot"
		return record{}, damaged
	}
	return r, nil
}
