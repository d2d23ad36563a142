package redistest

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A conn is a plain connection that sends a command and reads its answer. The client of the
// tests is not used for that, because it sends commands of its own, such as pings, which
// tests that count commands would see.
type conn struct {
	net    net.Conn
	reader *bufio.Reader
}

// A ReplyError is an error that a server answered, such as "NOAUTH …".
type ReplyError string

// Error returns the server's text.
func (e ReplyError) Error() string { return string(e) }

// dial connects as the admin user. The connection ends with the context.
func (s *Server) dial(ctx context.Context) (*conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return nil, err
	}
	if s.settings.tls != nil {
		raw = tls.Client(raw, s.settings.tls.client)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := raw.SetDeadline(deadline); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
	}
	c := &conn{net: raw, reader: bufio.NewReader(raw)}
	if u := s.settings.adminUser(); u.name != "" && !s.sentinel {
		if _, err := c.do("AUTH", u.name, u.password); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		s.ownCommands.Add(1)
	}
	return c, nil
}

// Do sends one command on a connection of its own and returns the answer: a string, an
// int64, nil, or a slice of these. An error that the server answers is a ReplyError. It
// blocks until the answer arrives, for 5 s at most.
func (s *Server) Do(ctx context.Context, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := s.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("redistest: %s: %w", s.Addr(), err)
	}
	defer func() { _ = c.net.Close() }()
	reply, err := c.do(args...)
	s.ownCommands.Add(1)
	if err != nil {
		return nil, fmt.Errorf("redistest: %s: %s: %w", s.Addr(), strings.Join(args[:min(len(args), 3)], " "), err)
	}
	return reply, nil
}

// text is Do for commands that answer a string.
func (s *Server) text(ctx context.Context, args ...string) (string, error) {
	reply, err := s.Do(ctx, args...)
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("redistest: %s: %s answered %v", s.Addr(), args[0], reply)
	}
	return text, nil
}

// Info returns the fields of a section of INFO.
func (s *Server) Info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.text(ctx, "INFO", section)
	if err != nil {
		return nil, err
	}
	return fields(text), nil
}

// fields reads lines of the form name:value.
func fields(text string) map[string]string {
	found := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			found[name] = value
		}
	}
	return found
}

func (c *conn) do(args ...string) (any, error) {
	if _, err := c.net.Write(appendRequest(nil, args...)); err != nil {
		return nil, err
	}
	return c.read()
}

// appendRequest appends a request, an array of texts.
func appendRequest(request []byte, args ...string) []byte {
	request = fmt.Appendf(request, "*%d\r\n", len(args))
	for _, arg := range args {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return request
}

// Monitor calls hear for every command that the server runs from now on, including those of
// scripts, as MONITOR shows them: a line of text each. It returns when monitoring has begun,
// and stops when the returned function is called, which returns when hear has got all
// earlier commands.
func (s *Server) Monitor(ctx context.Context, hear func(line string)) (stop func() error, err error) {
	c, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.do("MONITOR"); err != nil {
		return nil, errors.Join(err, c.net.Close())
	}
	last, ended := randomText(), make(chan error, 1)
	go func() {
		for {
			line, err := c.reader.ReadString('\n')
			if err != nil || strings.Contains(line, last) {
				ended <- err
				return
			}
			hear(strings.TrimRight(line, "\r\n"))
		}
	}()
	return func() error {
		_, err := s.Do(ctx, "ECHO", last)
		if err == nil {
			err = <-ended
		}
		return errors.Join(err, c.net.Close())
	}, nil
}

// read reads one answer in RESP2.
func (c *conn) read() (any, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, ReplyError(rest)
	}
	number, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("unreadable answer %q", line)
	}
	switch {
	case kind == ':':
		return number, nil
	case number < 0:
		return nil, nil
	case kind == '$':
		body := make([]byte, number+2)
		if _, err := io.ReadFull(c.reader, body); err != nil {
			return nil, err
		}
		return string(body[:number]), nil
	case kind == '*':
		list := make([]any, number)
		for i := range list {
			element, err := c.read()
			if failure := ReplyError(""); errors.As(err, &failure) {
				element = failure
			} else if err != nil {
				return nil, err
			}
			list[i] = element
		}
		return list, nil
	}
	return nil, fmt.Errorf("unreadable answer %q", line)
}

// randomText returns a password, or a unique part of a name.
func randomText() string { return rand.Text() }

// until calls check, at growing intervals, until it returns nil. When the context ends
// first, it returns the last error of check.
func until(ctx context.Context, what string, check func(context.Context) error) error {
	pause := 2 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	err := errors.New("never looked")
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("redistest: waiting for %s: %w (last: %w)", what, ctx.Err(), err)
		case <-timer.C:
		}
		if err = check(ctx); err == nil {
			return nil
		}
		timer.Reset(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}
