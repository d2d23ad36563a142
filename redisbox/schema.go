package redisbox

import (
	"fmt"
	"strconv"

	"github.com/mailboxmq/mailbox/driver"
)

// schema is the number of the layout that queues have in Redis. Every shard carries
// its number, and every script checks it. A change of what keys or fields mean is a
// new number, and scripts/migrate.lua turns the earlier layouts into it when a shard
// is first opened. A process that knows only lower numbers gets ErrUnsupported.
//
//	1  no number is kept; the rules are in the field "config" of meta
//	2  the rules are in the field "rules"; strict groups know what blocks them
const schema = 2

// schemaLine tells a script the number.
func schemaLine() string { return "local SCHEMA = '" + strconv.Itoa(schema) + "'\n" }

// isOldSchema reports whether a number is that of a layout which opening migrates.
func isOldSchema(number string) bool {
	n, err := strconv.Atoi(number)
	return err == nil && n < schema
}

// newerSchema returns the error for a layout that this version does not know.
func newerSchema(number string) error {
	return &driver.Error{
		Code:   driver.ErrUnsupported,
		Detail: fmt.Sprintf("the queue has schema %s in Redis, and this version knows up to %d; upgrade this process", number, schema),
	}
}
