package remotebox

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// connected returns a link that works, another one than avoid, and connects if
// there is none. It blocks until there is one, ctx ends, closed is closed, or the
// patience that began at since, or begins now if that is zero, is over.
func (b *Backend) connected(ctx context.Context, closed <-chan struct{}, avoid *link, since time.Time) (*link, error) {
	b.mu.Lock()
	l, err := b.linkLocked(ctx, avoid)
	if l != nil || err != nil {
		b.mu.Unlock()
		return l, err
	}
	b.waiting++
	defer func() {
		b.mu.Lock()
		b.waiting--
		b.mu.Unlock()
	}()
	patience := b.options.Patience
	if patience < 0 {
		patience = handshakeTime // for one attempt
	}
	timer := time.NewTimer(time.Until(orNow(since).Add(patience)))
	defer timer.Stop()
	for {
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-closed:
			return nil, closedError("connect", "")
		case <-timer.C:
			return nil, b.unreachable()
		}
		b.mu.Lock()
		if l, err := b.linkLocked(ctx, avoid); l != nil || err != nil {
			b.mu.Unlock()
			return l, err
		}
		if b.options.Patience < 0 {
			b.mu.Unlock()
			return nil, b.unreachable()
		}
	}
}

// linkLocked returns the link to use. If there is none, or a better one is wanted, it
// starts to connect.
func (b *Backend) linkLocked(ctx context.Context, avoid *link) (*link, error) {
	if b.link != nil && b.link.isOver() {
		b.link, b.leaving = nil, false
	}
	switch {
	case b.closed:
		return nil, closedError("connect", "")
	case b.invalid != nil:
		return nil, b.invalid
	case b.link != nil && b.link != avoid:
		if b.leaving {
			b.connectLocked(ctx)
		}
		return b.link, nil
	case permanent(b.last) && !b.dialing:
		err := b.last
		b.last = nil // the next one tries again
		return nil, err
	}
	b.connectLocked(ctx)
	return nil, nil
}

// unreachable is the error of who has lost patience.
func (b *Backend) unreachable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &driver.Error{
		Code: driver.ErrUnavailable, Op: "connect", Detail: "no daemon can be reached",
		RetryAfter: backoff.Shortest, Err: b.last,
	}
}

// permanent reports whether trying again is pointless.
func permanent(err error) bool {
	if misdirected(err) {
		return true
	}
	for _, code := range []driver.Code{driver.ErrUnauthenticated, driver.ErrForbidden, driver.ErrInvalid, driver.ErrUnsupported} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// connectLocked starts to connect unless that is under way.
func (b *Backend) connectLocked(ctx context.Context) {
	if b.dialing || b.closed {
		return
	}
	b.dialing = true
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it is for others too
	b.work.Go(func() {
		defer cancel()
		b.connect(ctx, cancel)
	})
}

// connect tries one address after the other until one works, trying is pointless,
// or no operation waits for it any more.
func (b *Backend) connect(ctx context.Context, cancel context.CancelFunc) {
	b.work.Go(func() { // closing ends it
		select {
		case <-b.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	for failures := 1; ; failures++ {
		b.mu.Lock()
		address := b.addresses[b.next%len(b.addresses)]
		b.next++
		b.mu.Unlock()
		l, err := b.attempt(ctx, address)
		b.mu.Lock()
		if err == nil && b.closed {
			b.mu.Unlock()
			l.close()
			b.mu.Lock()
			err = errClosed
		}
		if err == nil {
			b.adoptLocked(l)
		}
		b.last = err
		tried := failures >= len(b.addresses)
		done := err == nil || b.closed || permanent(err) && (tried || !misdirected(err)) || b.waiting == 0 && tried
		if done {
			b.dialing = false
			b.signalLocked()
			b.mu.Unlock()
			return
		}
		round := failures%len(b.addresses) == 0 // all of them failed
		if round {
			b.signalLocked()
		}
		b.mu.Unlock()
		if round {
			_ = backoff.Pause(ctx, backoff.AfterError(failures/len(b.addresses), err))
		}
	}
}

// adoptLocked makes l the link in use.
func (b *Backend) adoptLocked(l *link) {
	old := b.link
	b.link, b.leaving = l, false
	b.links[l] = struct{}{}
	if old != nil {
		b.work.Go(old.retire)
	}
	b.work.Go(func() {
		<-l.ended
		l.running.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.links, l)
		if b.link == l {
			b.link, b.leaving = nil, false
		}
	})
}

// attempt connects to one address and shows the token.
func (b *Backend) attempt(ctx context.Context, address string) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	nc, err := b.options.dial(ctx, address)
	if err != nil {
		return nil, unavailable(address, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	b.mu.Lock()
	token := b.token
	b.mu.Unlock()
	started, rest, err := b.handshake(nc, token)
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		stop()
		_ = nc.Close() // the error says enough
		if e, ok := errors.AsType[*driver.Error](err); ok {
			return nil, e
		}
		return nil, unavailable(address, err)
	}
	if started.MaxFrame > 0 {
		b.maxFrame.Store(int64(started.MaxFrame))
	}
	l := newLink(nc, &started, b)
	l.run(rest)
	return l, nil
}

func unavailable(address string, err error) error {
	return &driver.Error{
		Code: driver.ErrUnavailable, Op: "connect", Detail: fmt.Sprintf("the daemon at %s cannot be reached", address), Err: err,
	}
}

// A foreignError says that something else than a daemon's listener for frames
// answers at an address, and what to do.
type foreignError string

func (e foreignError) Error() string { return string(e) }

// startCorrelation is the correlation id of START: line ends, which a server of HTTP
// that was reached by mistake answers at once instead of waiting for more.
const startCorrelation = 0x0d0a0d0a_0d0a0d0a

// joinCorrelation is the correlation id of JOIN, KNOW and NAME. No call waits for the answer: a daemon
// of an earlier version refuses the request, and sends nothing that has to be joined.
const joinCorrelation = startCorrelation + 1

// foreignOf recognises the beginning of an answer in another protocol.
func foreignOf(answer []byte) foreignError {
	switch {
	case bytes.HasPrefix(answer, []byte("HTTP/")):
		return "it speaks HTTP, and not OAP/1 frames; give the address of the daemon's listen.oap (port 9411 by default)"
	case bytes.HasPrefix(answer, []byte{21, 3}): // an alert
		return "it speaks TLS; set Options.TLS"
	}
	return ""
}

// errMute is that START was not answered at all. Daemons that want TLS do that, and
// those that stop, so it is worth trying again.
var errMute = errors.New("it ended the connection without an answer; if it wants TLS, set Options.TLS")

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// misdirected reports whether an address, or how it is reached, is wrong.
func misdirected(err error) bool {
	_, foreign := errors.AsType[foreignError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	_, distrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return foreign || plain || distrusted
}

// handshake shows the token and learns what the daemon is like. rest is what was
// read beyond its answer.
func (b *Backend) handshake(nc net.Conn, token []byte) (started oap.StartAnswer, rest []byte, err error) {
	payload := oap.AppendStart(nil, &oap.StartRequest{Version: oap.ProtocolVersion, Producer: b.producer})
	frame := oap.AppendFrame(nil, &oap.Header{
		Flags: oap.Request | oap.Start, Code: oap.OpStart, Protocol: oap.ProtocolMailbox, Correlation: startCorrelation,
	}, token, payload)
	if b.options.Verify != nil {
		frame = oap.AppendFrame(frame, &oap.Header{
			Flags: oap.Event, Code: oap.EventEnvelopes, Protocol: oap.ProtocolMailbox,
		}, nil, nil)
	}
	frame = oap.AppendFrame(frame, &oap.Header{
		Flags: oap.Request, Code: oap.OpJoin, Protocol: oap.ProtocolMailbox, Correlation: joinCorrelation,
	}, nil, nil)
	frame = oap.AppendFrame(frame, &oap.Header{
		Flags: oap.Request, Code: oap.OpKnow, Protocol: oap.ProtocolMailbox, Correlation: joinCorrelation,
	}, nil, oap.AppendKnown(nil, oap.KnownTraits))
	frame = oap.AppendFrame(frame, &oap.Header{
		Flags: oap.Request, Code: oap.OpName, Protocol: oap.ProtocolMailbox, Correlation: joinCorrelation,
	}, nil, oap.AppendName(nil, b.options.worker()))
	if _, err := nc.Write(frame); err != nil {
		return started, nil, err
	}
	buffer := make([]byte, leastBuffer)
	for filled := 0; ; {
		n, err := nc.Read(buffer[filled:])
		filled += n
		if foreign := foreignOf(buffer[:filled]); foreign != "" {
			return started, nil, foreign
		}
		switch {
		case n == 0 && err != nil && filled == 0 && b.options.TLS == nil && !isTimeout(err):
			return started, nil, errMute
		case n == 0 && err != nil:
			return started, nil, err
		}
		f, rest, need, err := oap.Next(buffer[:filled])
		switch {
		case err != nil:
			return started, nil, err
		case need > len(buffer):
			return started, nil, oap.FrameError("the answer to START is too long")
		case need > 0:
			continue
		case f.Protocol != oap.ProtocolMailbox || f.Flags&oap.Response == 0:
			return started, nil, oap.FrameError("something else than an answer to START")
		case f.Code != oap.StatusOK:
			return started, nil, closeReason(&f)
		}
		started, err = oap.ParseStarted(f.Payload)
		return started, append([]byte(nil), rest...), err
	}
}

// drained is called when a daemon wants its clients to go elsewhere. Until there
// is another link, this one still does.
func (b *Backend) drained(l *link) {
	l.mu.Lock()
	l.draining = true
	l.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link == l {
		b.leaving = true
	}
}

// dismissed is called when a daemon that drains has nothing to do for this client
// any more. If it is right, the link ends, and the next operation connects again;
// otherwise it finds out when it is asked, and says so again.
func (b *Backend) dismissed(l *link) {
	l.mu.Lock()
	l.left = len(l.calls) == 0 && l.failure == nil
	left := l.left
	l.mu.Unlock()
	if !left {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link == l {
		b.link, b.leaving = nil, false
	}
	b.work.Go(l.close) // links end before the backend does
}

// retire ends a link that is not in use any more when its calls are done.
func (l *link) retire() {
	l.mu.Lock()
	l.draining = true
	for len(l.calls) > 0 && l.failure == nil {
		l.idle.Wait()
	}
	l.left = true // what comes now is for the next link
	l.mu.Unlock()
	l.close()
}
