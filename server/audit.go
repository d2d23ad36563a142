package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// auditQueue is the queue in a shared backend in which daemons keep what was changed
// through them.
var auditQueue = broker.Reserved("mailbox.audit")

const (
	// auditPartBytes is how much a message of gathered records has.
	auditPartBytes = 32 << 10
	// maxLooseRecords is how many messages with few records the queue may have before they
	// are gathered, for each daemon.
	maxLooseRecords = 512
	// auditSendTime bounds how long a change waits for the queue.
	auditSendTime = 2 * time.Second
	// auditRewriteTime bounds how long a change waits for the queue to be gathered or cut.
	auditRewriteTime = time.Minute
	auditSendBatch   = 16
)

// An auditLog is where a daemon records changes: an audit.Log, or a sharedAudit.
type auditLog interface {
	broker.AuditLog
	Stats() audit.Stats
}

// sharedAudit is the audit log of a daemon whose backend other daemons use too. Each record
// is in the daemon's own log first, and then in a queue that is only peeked into. Readers
// see the records of both, each once. What the queue lacks is added when it answers again.
//
// A message of the queue holds records in the format of the file. It is removed only after
// a message that was sent later holds the records of it that stay. So every record is in
// some message at each moment, whichever daemons rewrite the queue at the same time, and
// wherever they stop.
type sharedAudit struct {
	own    *audit.Log
	opener driver.Opener
	admin  driver.Admin
	daemon func() string // the name of this daemon
	log    *slog.Logger
	limit  int64 // of the queue, in bytes

	rewriting sync.Mutex // held while the queue is compared with the own log, or rewritten

	mu    sync.Mutex // guards the fields below
	queue driver.Queue
	// unsent counts the records that may be in the own log alone, and settled is how many of
	// those were in the queue when it was last compared, at compared.
	unsent, settled uint64
	compared        time.Time
	loose           int   // messages that this daemon has sent since the queue was last read
	used            int64 // bytes in the queue when it was last read, and sent since
}

// shareAudit opens the queue, and creates it if it does not exist. Records stay in the own
// log until sync is called. It blocks on I/O. Codes: ErrUnsupported, and those of the backend.
func shareAudit(ctx context.Context, own *audit.Log, opener driver.Opener, daemon func() string, log *slog.Logger) (*sharedAudit, error) {
	admin, ok := opener.(driver.Admin)
	if !ok {
		return nil, errNoLog
	}
	s := &sharedAudit{own: own, opener: opener, admin: admin, daemon: daemon, log: log, limit: audit.DefaultLimit, unsent: 1}
	var err error
	s.queue, err = openReserved(ctx, opener, admin, auditQueue)
	return s, err
}

// Append implements broker.AuditLog: the record is in the own log and in the queue. If one
// of them fails that is logged, and the error is nil: the record is kept.
func (s *sharedAudit) Append(r audit.Record) error {
	r.Daemon, r.ID = s.daemon(), ulid.Make().String()
	errOwn := s.own.Append(r)
	errSend := s.publish(r)
	if errOwn != nil && errSend == nil {
		s.log.Error("audit.only_in_backend", slog.String("operation", r.Operation), slog.String("error", errOwn.Error()))
		return nil
	}
	return errOwn
}

var errBehind = errors.New("earlier records are not in the backend yet")

// publish sends a record to the queue, and rewrites the queue when it is due. While the
// queue lacks an earlier record, records are left to sync.
func (s *sharedAudit) publish(r audit.Record) error {
	s.mu.Lock()
	queue, behind := s.queue, s.unsent != s.settled
	if behind {
		s.unsent++
	}
	s.mu.Unlock()
	if behind {
		return errBehind
	}
	base := context.Background() // a record is kept even if the client is gone
	ctx, cancel := context.WithTimeout(base, auditSendTime)
	defer cancel()
	sent, err := s.send(ctx, queue, []audit.Record{r})
	s.mu.Lock()
	s.used += sent
	s.loose++
	due := s.loose > maxLooseRecords
	if err != nil {
		s.unsent++
		due = false
	}
	if due {
		s.loose = 0
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		s.log.Warn("audit.not_shared", slog.String("error", err.Error()))
	case due:
		ctx, cancel := context.WithTimeout(base, auditRewriteTime)
		defer cancel()
		s.rewriting.Lock()
		defer s.rewriting.Unlock()
		if failed := s.rewrite(ctx, queue, nil); failed != nil { // the queue is only longer than necessary
			s.log.Warn("audit.not_gathered", slog.String("error", failed.Error()))
		}
	}
	return err
}

// send adds records to the queue, and returns how many bytes were sent.
func (s *sharedAudit) send(ctx context.Context, queue driver.Queue, records []audit.Record) (sent int64, err error) {
	texts, err := audit.Encode(records, auditPartBytes)
	if err != nil {
		return 0, err
	}
	for batch := range slices.Chunk(texts, auditSendBatch) {
		var messages []driver.Outgoing
		for _, text := range batch {
			messages = append(messages, driver.Outgoing{Body: text})
			sent += int64(len(text))
		}
		if _, err := queue.Send(ctx, messages); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// An auditReading is the content of the queue.
type auditReading struct {
	messages []auditMessage
	bytes    int64
	damaged  int // records that cannot be read
}

type auditMessage struct {
	id      string
	bytes   int
	records []audit.Record
	damaged int
}

// records returns the records of the messages for which in is true, each once.
func (a *auditReading) records(in func(*auditMessage) bool) []audit.Record {
	var all [][]audit.Record
	for i := range a.messages {
		if in(&a.messages[i]) {
			all = append(all, a.messages[i].records)
		}
	}
	return audit.Union(all...)
}

func (*auditMessage) any() bool { return true }

// isLoose reports whether a message has little enough to be gathered with others. One with damage stays
// as it is.
func (m *auditMessage) isLoose() bool { return m.bytes < auditPartBytes/2 && m.damaged == 0 }

func (s *sharedAudit) read(ctx context.Context, queue driver.Queue) (a auditReading, err error) {
	for peeked, err := range queue.Peek(ctx, driver.Query{}) {
		if err != nil {
			return auditReading{}, err
		}
		m := auditMessage{id: peeked.ID, bytes: len(peeked.Body)}
		m.records, m.damaged = audit.Decode(peeked.Body)
		a.messages = append(a.messages, m)
		a.bytes += int64(m.bytes)
		a.damaged += m.damaged
	}
	s.mu.Lock()
	s.used = a.bytes
	s.mu.Unlock()
	return a, nil
}

// Records implements broker.AuditLog: what was changed through all daemons. Codes: those of
// the backend.
func (s *sharedAudit) Records(ctx context.Context) ([]audit.Record, int, error) {
	s.mu.Lock()
	queue := s.queue
	s.mu.Unlock()
	all, err := s.read(ctx, queue)
	if err != nil {
		return nil, 0, err
	}
	own, damaged, err := s.ownRecords(ctx)
	return audit.Union(all.records((*auditMessage).any), own), all.damaged + damaged, err
}

func (s *sharedAudit) ownRecords(ctx context.Context) ([]audit.Record, int, error) {
	records, damaged, err := s.own.Records(ctx)
	audit.Identify(records, s.daemon())
	return records, damaged, err
}

// sync adds the records that the queue lacks, if there may be any, and makes the queue again
// if it was deleted. Otherwise it reads only how many messages there are, but compares
// everything every maintainEvery: a failover of the backend may have lost some.
func (s *sharedAudit) sync(ctx context.Context) error {
	s.rewriting.Lock()
	defer s.rewriting.Unlock()
	s.mu.Lock()
	queue, unsent, behind := s.queue, s.unsent, s.unsent != s.settled || time.Since(s.compared) >= maintainEvery
	s.mu.Unlock()
	_, err := queue.Stats(ctx)
	if errors.Is(err, driver.ErrNotFound) {
		s.log.LogAttrs(ctx, slog.LevelError, "audit.log_lost")
		lost := queue
		if queue, err = openReserved(ctx, s.opener, s.admin, auditQueue); err != nil {
			return err
		}
		_ = lost.Close()
		s.mu.Lock()
		s.queue = queue
		s.unsent++
		unsent, behind = s.unsent, true
		s.mu.Unlock()
	}
	if err != nil || !behind {
		return err
	}
	own, _, err := s.ownRecords(ctx)
	if err == nil {
		err = s.rewrite(ctx, queue, own)
	}
	if err == nil {
		s.mu.Lock()
		s.settled, s.compared = unsent, time.Now() // records that were added meanwhile are for the next call
		s.mu.Unlock()
	}
	return err
}

// rewrite adds the records that the queue lacks. It gathers loose messages if there are many,
// and cuts a queue that is too long. It reads the queue again after a change, because another
// daemon may have rewritten it at the same time.
func (s *sharedAudit) rewrite(ctx context.Context, queue driver.Queue, own []audit.Record) error {
	const rounds = 4
	for range rounds {
		all, err := s.read(ctx, queue)
		if err != nil {
			return err
		}
		keep, obsolete := s.plan(&all, own)
		if len(keep)+len(obsolete) == 0 {
			return nil
		}
		if _, err := s.send(ctx, queue, keep); err != nil {
			return err
		}
		for _, m := range obsolete {
			_, err := queue.Edit(ctx, m.id, driver.Edit{Remove: true})
			if err != nil && !errors.Is(err, driver.ErrNotFound) { // another daemon has removed it
				return err
			}
		}
		own = nil // they are there, or the log has no room for them
	}
	return nil
}

// plan returns the records to be sent, and the messages to be removed after that.
func (s *sharedAudit) plan(all *auditReading, own []audit.Record) (keep []audit.Record, obsolete []auditMessage) {
	shared := all.records((*auditMessage).any)
	known := make(map[string]struct{}, len(shared))
	for i := range shared {
		known[shared[i].ID] = struct{}{}
	}
	missing := slices.DeleteFunc(own, func(r audit.Record) bool {
		_, ok := known[r.ID]
		return ok
	})
	if len(missing) > 0 { // some may have been cut off: the queue gets those that a cut would keep
		kept := make(map[string]struct{})
		for _, r := range audit.Bound(audit.Union(shared, missing), s.limit/2) {
			kept[r.ID] = struct{}{}
		}
		missing = slices.DeleteFunc(missing, func(r audit.Record) bool {
			_, ok := kept[r.ID]
			return !ok
		})
	}
	if all.bytes > s.limit {
		return audit.Bound(audit.Union(shared, missing), s.limit/2), all.messages
	}
	for i := range all.messages {
		if all.messages[i].isLoose() {
			obsolete = append(obsolete, all.messages[i])
		}
	}
	if len(obsolete) <= maxLooseRecords {
		return missing, nil
	}
	return audit.Union(missing, all.records((*auditMessage).isLoose)), obsolete
}

// close adds what the queue lacks, for a moment, and closes it.
func (s *sharedAudit) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), auditSendTime) // that of Run has ended
	defer cancel()
	if err := s.sync(ctx); err != nil { // the next start does it
		s.log.LogAttrs(ctx, slog.LevelWarn, "audit.not_shared", slog.String("error", err.Error()))
	}
	return s.queue.Close()
}

// Stats returns the fill of the queue when it was last read, and the failures of the own log.
func (s *sharedAudit) Stats() audit.Stats {
	failures := s.own.Stats().Failures
	s.mu.Lock()
	defer s.mu.Unlock()
	return audit.Stats{Used: s.used, Limit: s.limit, Failures: failures}
}

// name returns what the daemon is called in the audit log: its host and the port of its first
// listener.
func (s *Server) name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	for _, listener := range []string{HTTP, OAP, SQS} {
		if _, port, err := net.SplitHostPort(s.Address(listener)); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return host
}
