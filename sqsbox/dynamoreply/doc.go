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
// Whoever makes it by other means than CreateTable should turn on time to live
// for the attribute "ttl": DynamoDB then removes, at no cost, what nobody has
// read, within days of its end. Nothing depends on that. A slot is over when its
// time is, and an item that is still there says so to whoever asks.
//
// A program needs the permissions GetItem, BatchGetItem, PutItem, UpdateItem and
// DeleteItem; Scan for [Store.Expired] and [Store.Sweep]; and for CreateTable also
// CreateTable, DescribeTable, DescribeTimeToLive and UpdateTimeToLive. Of a global
// table all programs must use the same region: conditions are checked in one
// region only.
//
// # Waiting
//
// DynamoDB wakes nobody, so [Store.Wait] looks again: after a few milliseconds
// at first, then less and less often, down to once in Options.PollMax. All who
// wait for one slot share each look, and slots are looked at together, up to 100
// in one request. When an answer comes, all the others are looked at soon,
// because workers are at work. Answers that are written through the same Store
// are seen at once. Options.ReadsPerSecond bounds what all of this may cost.
//
// # Clocks
//
// DynamoDB has no clock that conditions could use, so the times of a slot come
// from the clocks of the programs. They are kept together by what DynamoDB does
// tell: each of its answers carries the second in which it was given. A program
// whose clock is within two seconds of that is believed. One whose clock is not
// is corrected, from the first request on and when it has not heard from DynamoDB
// for a minute before it writes. So however wrong clocks are, two programs
// disagree about the time by a few seconds at most, and for that long they may
// disagree about whether a slot has expired: a worker may store an answer that
// its caller has just given up. That a slot is written once does not depend on
// any clock.
package dynamoreply
