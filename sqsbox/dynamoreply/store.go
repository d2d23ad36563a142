package dynamoreply

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/mailboxmq/mailbox/driver"
)

// maxAnswerBytes bounds an answer: its body, or the text and the kind of its
// failure. A DynamoDB item holds 400 KiB; the other attributes of a slot need
// less than one.
const maxAnswerBytes = 399 << 10

// The defaults of Options.
const (
	defaultPollMin        = 5 * time.Millisecond
	defaultPollMax        = time.Second
	defaultReadsPerSecond = 1000
	defaultTimeout        = 5 * time.Second
	defaultAttempts       = 6
)

// Client is what the store needs of a *dynamodb.Client.
type Client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
	UpdateTimeToLive(context.Context, *dynamodb.UpdateTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
}

var _ Client = (*dynamodb.Client)(nil)

// Options configure a store. The zero Options, and nil, are the defaults.
type Options struct {
	// CreateTable makes Open create the table if it does not exist, with
	// on-demand capacity, and turn on its time to live if that is off.
	CreateTable bool
	// PollMin and PollMax are the pauses between two reads of a slot during a
	// wait, at first and in the long run. 0 means 5 milliseconds and
	// defaultPollMax.
	PollMin, PollMax time.Duration
	// ReadsPerSecond bounds how many slots all waits of this store together
	// read in a second. 0 means 1,000.
	ReadsPerSecond int
	// Timeout bounds one request to DynamoDB. 0 means 5 seconds.
	Timeout time.Duration
	// Attempts is how often a request is sent, with growing pauses, while
	// DynamoDB throttles it or does not respond. 0 means 6. The
	// client's own retries are not used.
	Attempts int
}

// A store is a reply store in a table of DynamoDB, see Open.
type store struct {
	client   Client
	table    string
	timeout  time.Duration
	attempts int
	perCall  func(*dynamodb.Options)
	clock    *clock
	watcher  *watcher
}

var _ driver.ReplyStore = (*store)(nil)

// The names of operations in errors.
const (
	opOpen    = "open reply store"
	opCreate  = "create slot"
	opResolve = "resolve"
	opCancel  = "cancel"
	opGet     = "get"
	opWait    = "wait"
	opConsume = "consume"
	opDelete  = "delete slot"
	opExpired = "list expired slots"
	opSweep   = "sweep slots"
)

// Open returns the store in a table, after a read that shows that the table is
// usable. It blocks on I/O, with Options.CreateTable for as long as the creation
// takes, and ends with ctx. The caller keeps the client. Codes: ErrNotFound (there
// is no such table), ErrInvalid (no client, or a table with another key),
// ErrForbidden, ErrUnauthenticated, ErrUnavailable.
//
// The store is safe for concurrent use, needs no closing, and runs a goroutine only
// while a caller waits. Besides the codes of driver.ReplyStore, its methods return
// ErrForbidden and ErrUnauthenticated when DynamoDB refuses the program or its
// credentials, and ErrUnavailable when the table does not exist, or when DynamoDB
// throttles (Error.RetryAfter is then set) or does not respond after Options.Attempts.
func Open(ctx context.Context, client Client, table string, options *Options) (driver.ReplyStore, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if client == nil || table == "" {
		return nil, &driver.Error{Code: driver.ErrInvalid, Op: opOpen, Queue: table, Field: "client or table", Detail: "is missing"}
	}
	s := newStore(client, table, o)
	if o.CreateTable {
		if err := s.createTable(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.probe(ctx, opOpen, ""); err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(client Client, table string, o Options) *store {
	s := &store{
		client: client, table: table, clock: &clock{},
		timeout:  orDefault(o.Timeout, defaultTimeout),
		attempts: orDefault(o.Attempts, defaultAttempts),
	}
	s.perCall = s.prepareCall
	s.watcher = &watcher{
		store: s, watches: make(map[string]*watch), nudged: make(chan struct{}, 1),
		pauseMin: orDefault(o.PollMin, defaultPollMin),
		pace:     time.Second / time.Duration(orDefault(o.ReadsPerSecond, defaultReadsPerSecond)),
	}
	s.watcher.pauseMax = max(orDefault(o.PollMax, defaultPollMax), s.watcher.pauseMin)
	return s
}

func orDefault[N int | time.Duration](value, otherwise N) N {
	if value > 0 {
		return value
	}
	return otherwise
}

// probeID is the id of a slot that no caller can create, because of its braces.
const probeID = "{probe}"

// probe sends a read, to learn DynamoDB's time and whether the table is readable.
func (s *store) probe(ctx context.Context, op, id string) error {
	_, err := call(ctx, s, request{op: op, id: id}, s.client.GetItem, &dynamodb.GetItemInput{TableName: &s.table, Key: keyOf(probeID)})
	return err
}

// now returns the time to use in a write. If the clock has not been compared with
// DynamoDB's for a while, it compares it first.
func (s *store) now(ctx context.Context, op, id string) (time.Time, error) {
	if s.clock.stale() {
		if err := s.probe(ctx, op, id); err != nil {
			return time.Time{}, err
		}
	}
	return s.clock.now(), nil
}

func checkLimit(op string, limit int) error {
	if limit < 1 {
		return &driver.Error{Code: driver.ErrInvalid, Op: op, Field: "limit", Detail: fmt.Sprintf("%d, at least 1 is needed", limit)}
	}
	return nil
}
