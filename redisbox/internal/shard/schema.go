package shard

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// schema is the number of the layout that queues have in Redis. Every shard has a
// number, and every script checks it. Changing the meaning of a key or a field takes a
// new number, and scripts/migrate.lua turns earlier layouts into it when a shard is
// first opened. A process that knows only lower numbers gets ErrUnsupported.
//
//	1  has no number; the configuration is in the field "config" of meta
//	2  the configuration is in the field "rules"; strict groups know what blocks them
//	3  like 2, and paused: pause.lua changes one into the other, so that a process that
//	   does not know of pauses gets an error instead of messages
//	4  like 2, and there are ready messages with priorities, in levels: the number changes
//	   with the first and the last of them, so that a process that does not know of levels
//	   gets an error instead of missing them
//	5  like 4, and paused
//	6  like 2, and messages hold unique keys, in holders: the number changes with the first
//	   and the last of them, so that a process that does not know of keys gets an error
//	   instead of removing a message and leaving its key behind
//	7, 8 and 9  like 3, 4 and 5, and messages hold unique keys
const (
	schema            = 2
	prioritizedSchema = 4
	keyedSchema       = 6
	newestSchema      = 9
)

// schemaLine defines the numbers in a script.
func schemaLine() string {
	return fmt.Sprintf("local SCHEMA, PRIORITIZED, KEYED, NEWEST = %d, %d, %d, %d\n", schema, prioritizedSchema, keyedSchema, newestSchema)
}

// isOldSchema reports whether opening migrates a layout with this number.
func isOldSchema(number string) bool {
	n, err := strconv.Atoi(number)
	return err == nil && n < schema
}

// newerSchema returns the error for a layout that this version does not know.
func newerSchema(number string) error {
	return &driver.Error{
		Code:   driver.ErrUnsupported,
		Detail: fmt.Sprintf("the queue has schema %s in Redis, and this version knows up to %d; upgrade this process", number, newestSchema),
	}
}

// readSchema handles the reply of a script that found another schema: an earlier one
// is migrated. A shard can have one after a restore, or after a failover that lost the
// migration.
func (s *Shard) readSchema(ctx context.Context, reply []rueidis.RedisMessage) (status string, err error) {
	number, err := schemaOf(reply)
	if err != nil {
		return "", err
	}
	if !isOldSchema(number) {
		return "schema", newerSchema(number)
	}
	if err := s.Queue.Owner.OpenAgain(ctx, s, false); err != nil {
		return "", err
	}
	return "again", nil
}

// schemaOf returns the number that goes with the status schema.
func schemaOf(reply []rueidis.RedisMessage) (string, error) {
	if len(reply) < 2 {
		return "", UnreadableAnswer(nil)
	}
	return reply[1].ToString()
}
