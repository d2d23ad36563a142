package remotebox

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// Backend is a client of mailboxd. It is a driver.Opener, a driver.Admin and a
// driver.Pinger, and safe for concurrent use.
type Backend struct {
	addresses []string
	options   Options
	invalid   error // why it cannot connect, whatever it does
	producer  [16]byte
	sequence  *sequence
	closing   chan struct{} // closed when the backend is
	active    sync.WaitGroup
	work      sync.WaitGroup // goroutines
	spare     sync.Pool      // of calls
	// ungranted is set when the daemon turns out to be of an earlier version, which
	// does not say what extensions were granted.
	ungranted atomic.Bool
	// unreported is the same for oap.OpExtendProgress.
	unreported atomic.Bool
	// maxFrame is how long a request may be, as the daemon announced last.
	maxFrame atomic.Int64

	mu      sync.Mutex // guards the fields below
	closed  bool
	token   []byte
	link    *link // in use; nil if there is none
	leaving bool  // its daemon wants its clients to go elsewhere
	links   map[*link]struct{}
	waiting int           // operations that wait for a link
	dialing bool          // a goroutine connects
	changed chan struct{} // closed when something here changes
	last    error         // why the latest attempt to connect failed
	next    int           // address
	queues  map[*queue]struct{}
}

var (
	_ driver.Opener = (*Backend)(nil)
	_ driver.Admin  = (*Backend)(nil)
	_ driver.Pinger = (*Backend)(nil)
)

// New returns a client of the daemon at any of the addresses, which are
// host:port or unix:/path, with a token in its text form. The addresses must be
// of daemons that serve the same queues. It does no I/O and connects when it is first
// used, so a program can start before its daemon; that use reports an invalid address
// or token.
func New(addresses []string, token string, options *Options) *Backend {
	b := &Backend{
		addresses: addresses, sequence: newSequence(), closing: make(chan struct{}),
		links: make(map[*link]struct{}), changed: make(chan struct{}),
		queues: make(map[*queue]struct{}),
	}
	b.maxFrame.Store(oap.EarlierFrameBytes)
	if options != nil {
		b.options = *options
	}
	if b.options.Patience == 0 {
		b.options.Patience = defaultPatience
	}
	b.token, b.invalid = decodeToken(token)
	for _, address := range addresses {
		if err := b.options.check(address); err != nil {
			b.invalid = err
		}
	}
	if len(addresses) == 0 {
		b.invalid = &driver.Error{Code: driver.ErrInvalid, Op: "connect", Field: "addresses", Detail: "there are none"}
	}
	_, _ = rand.Read(b.producer[:]) // never fails, see crypto/rand
	return b
}

// Open is New, and connects: it returns when the daemon has accepted the token.
// It blocks for as long as Options.Patience says, or until ctx ends. Codes:
// ErrInvalid, ErrUnauthenticated, ErrForbidden, ErrUnavailable.
func Open(ctx context.Context, addresses []string, token string, options *Options) (*Backend, error) {
	b := New(addresses, token, options)
	if _, err := b.connected(ctx, nil, nil, time.Time{}); err != nil {
		_ = b.Close() // it has nothing to say
		return nil, err
	}
	return b, nil
}

// SetToken makes the client use another token, in its text form, from its next
// connection on, which it makes when it is next used: tokens expire. It
// does not block. What is under way goes on with the old token. Codes:
// ErrUnauthenticated (it is not the text of a token).
func (b *Backend) SetToken(token string) error {
	binary, err := decodeToken(token)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.token, b.last = binary, nil
	b.leaving = b.link != nil
	return nil
}

// Ping returns nil when the daemon, and the backend behind it, answer and take
// writes. It blocks until then, at most as long as Options.Patience says. Codes:
// ErrUnavailable, ErrClosed.
func (b *Backend) Ping(ctx context.Context) error {
	c := b.newCall(oap.OpPing, func(dst []byte, _ oap.Target) []byte { return dst })
	err := b.roundTrip(ctx, &operation{name: "ping", call: c, repeatable: true})
	b.free(c)
	return err
}

// Close ends all handles and the connection. Receives that wait return ErrClosed,
// and so does everything called later. What else is under way has a moment to
// finish. It blocks until that is over. Closing twice is fine.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.work.Wait()
		return nil
	}
	b.closed = true
	close(b.closing)
	b.signalLocked()
	handles := make([]*queue, 0, len(b.queues))
	for q := range b.queues {
		handles = append(handles, q)
	}
	b.mu.Unlock()
	for _, q := range handles {
		_ = q.Close() // never fails
	}
	b.finish()
	b.mu.Lock()
	links := make([]*link, 0, len(b.links))
	for l := range b.links {
		links = append(links, l)
	}
	b.mu.Unlock()
	for _, l := range links {
		l.close()
	}
	b.work.Wait()
	return nil
}

// finish waits for what is under way, for a moment.
func (b *Backend) finish() {
	finished := make(chan struct{})
	b.work.Go(func() {
		b.active.Wait()
		close(finished)
	})
	timer := time.NewTimer(graceTime)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
	}
}

// errClosed is why calls end with the backend.
var errClosed = &driver.Error{Code: driver.ErrClosed}

// close says goodbye and ends the link.
func (l *link) close() {
	l.mu.Lock()
	failed := l.failure != nil
	l.mu.Unlock()
	if !failed {
		// The daemon may not be reading; it finds out in other ways too.
		_ = l.net.SetDeadline(time.Now().Add(graceTime))
		l.event(oap.End, oap.EventGoodbye, 0, nil)
		l.mu.Lock()
		for l.writing && l.failure == nil {
			l.idle.Wait()
		}
		l.mu.Unlock()
	}
	l.fail(errClosed)
	l.running.Wait()
}

// closedError is what a closed backend answers.
func closedError(op, queue string) error {
	return &driver.Error{Code: driver.ErrClosed, Op: op, Queue: queue}
}

// signalLocked tells those who wait that something has changed.
func (b *Backend) signalLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}
