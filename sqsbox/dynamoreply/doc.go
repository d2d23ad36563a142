// Package dynamoreply is a reply store on DynamoDB, for clients and workers that
// share nothing but an AWS account:
//
//	config, err := config.LoadDefaultConfig(ctx)
//	…
//	store, err := dynamoreply.Open(ctx, dynamodb.NewFromConfig(config), "replies",
//		&dynamoreply.Options{CreateTable: true})
//	…
//	requests, err := mailbox.Open(ctx, backend, "requests", &mailbox.Options[Question]{Replies: store})
//	client := reply.NewClient[Question, Answer](requests, store, nil)
//
// # The table
//
// Each slot is an item. The table has one key, the string "id", and no index.
// If you create the table without Options.CreateTable, turn on time to live for
// the attribute "ttl": DynamoDB then removes unread slots at no cost, within days
// of their expiry. Correctness does not depend on that. A slot expires at its own
// time, and reading an item that is still in the table reports the expiry.
//
// A program needs the permissions GetItem, BatchGetItem, PutItem, UpdateItem and
// DeleteItem; Scan for Expired and Sweep; and for CreateTable also
// CreateTable, DescribeTable, DescribeTimeToLive and UpdateTimeToLive. All programs
// that share a global table must use the same region: DynamoDB checks conditions
// in one region only.
//
// # Write-once
//
// Resolve and Cancel update an item on the condition that its state
// is pending and that it has not expired, so exactly one write wins. A mark in the
// item tells a call whose response was lost that its own write won. Both are in
// slot.go, in store.write.
//
// # Waiting
//
// DynamoDB does not notify clients, so Wait polls: after a few milliseconds
// at first, then less and less often, down to once per Options.PollMax. All waits
// for one slot share each read, and one request reads up to 100 slots. When an
// answer arrives, the other slots are read soon, because workers are evidently
// active. Answers written through the same store are seen at once.
// Options.ReadsPerSecond bounds the cost of all polling.
//
// # Clocks
//
// Conditions in DynamoDB cannot use a server clock, so the times of a slot come
// from the clocks of the programs. The Date header of DynamoDB's responses keeps
// them together: a clock within two seconds of it is used as it is, any other is
// corrected. The correction starts with the first request, and is checked again
// before a write if the last response is more than a minute old. However wrong
// their clocks are, two programs thus disagree about the time by a few seconds at
// most, and for that long they may disagree about whether a slot has expired: a
// worker may store an answer that its caller has just given up. Write-once does
// not depend on any clock.
package dynamoreply
