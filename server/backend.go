package server

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
	"github.com/mailboxmq/mailbox/internal/slotstore"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/pgbox"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

// openBackend opens the backend that the configuration names, unless Options.Opener
// is set. It returns the function that closes it.
func (s *Server) openBackend(ctx context.Context, c *Config) (closeBackend func() error, err error) {
	if s.opener != nil {
		s.replies = replyslot.StoreOf(s.opener, 2*c.MaxReplySlots) // see openRedis
		return func() error { return nil }, nil
	}
	if !*c.Amnesia {
		if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
			return nil, err
		}
	}
	scheme, rest, _ := strings.Cut(c.Backend, ":")
	switch scheme {
	case "memory":
		backend := membox.New(&membox.Options{Defaults: c.queueDefaults(), MaxBodyBytes: sqsapi.MaxPayloadBytes, Wipe: *c.Amnesia})
		s.opener = backend
		s.replies = slotstore.New(slotstore.Options{MaxSlots: c.MaxReplySlots, MaxBytes: int64(c.MaxReplyBytes), MaxBodyBytes: sqsapi.MaxPayloadBytes})
		return backend.Close, nil
	case "disk":
		backend, err := diskbox.Open(ctx, strings.TrimPrefix(rest, "//"), &diskbox.Options{
			Defaults: c.queueDefaults(), Logger: s.log, MaxBodyBytes: sqsapi.MaxPayloadBytes,
			ReserveBytes: int64(c.DiskReserve), MaxReplySlots: c.MaxReplySlots,
		})
		if err != nil {
			return nil, err
		}
		s.opener, s.replies = backend, backend.Replies()
		return backend.Close, nil
	case "postgres", "postgresql":
		backend, err := pgbox.OpenAddress(ctx, c.Backend, &pgbox.Options{Defaults: c.queueDefaults(), MaxBodyBytes: sqsapi.MaxPayloadBytes, Logger: s.log})
		if err != nil {
			return nil, err
		}
		s.opener, s.replies, s.shared = backend, replyslot.StoreOf(backend, c.MaxReplySlots), true
		return backend.Close, nil
	}
	return s.openRedis(ctx, c)
}

// backendName returns the name of the backend for errors; it is empty for one that the embedding
// program passed.
func (s *Server) backendName(c *Config) string {
	if s.embedded {
		return ""
	}
	scheme, _, _ := strings.Cut(c.Backend, ":")
	switch {
	case scheme == "memory" || scheme == "disk":
		return scheme
	case scheme == "postgres" || scheme == "postgresql":
		return "PostgreSQL"
	}
	return "Redis"
}

// splitReplicas takes the parameter replicas out of a URL of Redis: how many replicas of a primary
// confirm. The rest is for the client.
func splitReplicas(address string) (rest string, replicas int, err error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" { // the error of the parser may contain a password
		return "", 0, errors.New("invalid URL; want redis://HOST:PORT, with ?addr=HOST:PORT for further nodes of a cluster")
	}
	parameters := parsed.Query()
	if parameters.Has("replicas") {
		n, err := strconv.ParseUint(parameters.Get("replicas"), 10, 8)
		if err != nil {
			return "", 0, errors.New("invalid URL: replicas: want how many replicas of a primary confirm, 0 to 255")
		}
		replicas = int(n)
		parameters.Del("replicas")
		parsed.RawQuery = parameters.Encode()
		address = parsed.String()
	}
	return address, replicas, nil
}

func (s *Server) openRedis(ctx context.Context, c *Config) (func() error, error) {
	address, replicas, err := splitReplicas(c.Backend)
	if err != nil {
		return nil, err
	}
	option, err := rueidis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("invalid Redis URL; want redis://HOST:PORT") // not quoted: it may contain a password
	}
	option.AlwaysPipelining = true
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, &driver.Error{Code: driver.ErrUnavailable, Op: "open", Err: err}
	}
	backend, err := redisbox.Open(ctx, client, &redisbox.Options{Defaults: c.queueDefaults(), MaxBodyBytes: sqsapi.MaxPayloadBytes, Replicas: replicas, Logger: s.log})
	if err != nil {
		client.Close()
		return nil, err
	}
	s.opener, s.replies, s.shared = backend, backend.Replies(2*c.MaxReplySlots), true // its buckets are not filled evenly
	return func() error {
		err := backend.Close()
		client.Close()
		return err
	}, nil
}
