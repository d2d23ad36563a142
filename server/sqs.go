package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/server/internal/guard"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

// The emulators of SQS that a daemon can replace.
const (
	localStack = "localstack"
	elasticMQ  = "elasticmq"
)

// SQSConfig configures the surface for clients of Amazon SQS.
type SQSConfig struct {
	// CredentialsFile maps access keys and secrets to tokens, for clients that send no
	// session token; empty means none.
	CredentialsFile string
	// Unsigned allows every client of Config.ListenSQS, with or without a signature, all
	// operations on the queues without a tenant. It is for tests.
	Unsigned bool
	// Compatibility is "localstack" or "elasticmq": the port of that emulator is the
	// default of Config.ListenSQS, its health check is answered there, and new queues
	// report encryption by SQS.
	Compatibility string
	// StrictMinute refuses for a minute, as AWS does, to create a queue with the name of
	// a deleted one, and to purge a queue again.
	StrictMinute bool
	// TakeOver reads the requests that follow the first of a connection without package
	// http, which costs less processor time. Nil means true.
	TakeOver *bool
	// Queues are created, or changed, when the daemon starts and at each reload.
	Queues []SQSQueue
}

// An SQSQueue is a queue declared in the configuration, with the attribute names and
// values of SQS.
type SQSQueue = sqsapi.Declaration

// address returns the address of the SQS listener.
func (c *SQSConfig) address(given string) string {
	switch {
	case given != "":
		return given
	case c.Compatibility == localStack:
		return "127.0.0.1:4566"
	case c.Compatibility == elasticMQ:
		return "127.0.0.1:9324"
	}
	return ""
}

func checkSQS(c *Config) error {
	if kind := c.SQS.Compatibility; kind != "" && kind != localStack && kind != elasticMQ {
		return about("sqs.compatibility", kind, localStack+" or "+elasticMQ)
	}
	off := c.ListenSQS == "" || c.ListenSQS == Off
	switch {
	case c.SQS.Unsigned && off:
		return fmt.Errorf("sqs.unsigned (--sqs-unsigned) needs listen.sqs (--listen-sqs); requests on listen.http are always signed")
	case c.SQS.Unsigned && !c.InsecureListen && !loopback(c.ListenSQS):
		return fmt.Errorf("listen.sqs (--listen-sqs): %s is beyond this machine, and sqs.unsigned lets every client do everything; listen on 127.0.0.1, or set listen.insecure (--insecure-listen) if a firewall restricts access", c.ListenSQS)
	}
	for i := range c.SQS.Queues {
		if err := c.SQS.Queues[i].Check(); err != nil {
			return err
		}
	}
	return nil
}

// declare reads the table sqs.queues: for each queue its attributes, by their names
// in SQS, and the table tags. Policies may be tables or strings, and the dead-letter
// queue may be given by its name instead of its ARN.
func (c *SQSConfig) declare(value any) error {
	tables, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("sqs.queues: want a table of queues")
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		table, ok := tables[name].(map[string]any)
		if !ok {
			return fmt.Errorf("sqs.queues.%s: want a table of attributes", name)
		}
		queue := SQSQueue{Name: name, Attributes: make(map[string]string)}
		for key, value := range table {
			var err error
			if key == "tags" {
				queue.Tags, err = textsOf(value)
			} else {
				queue.Attributes[key], err = attributeOf(value)
			}
			if err != nil {
				return fmt.Errorf("sqs.queues.%s.%s: %w", name, key, err)
			}
		}
		c.Queues = append(c.Queues, queue)
	}
	return nil
}

func textsOf(value any) (map[string]string, error) {
	table, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("want a table of strings")
	}
	texts := make(map[string]string)
	for key, value := range table {
		text, err := textOf(value)
		if err != nil {
			return nil, err
		}
		texts[key] = text
	}
	return texts, nil
}

// attributeOf returns the value of an attribute; a table becomes JSON.
func attributeOf(value any) (string, error) {
	table, ok := value.(map[string]any)
	if !ok {
		return textOf(value)
	}
	const target = "deadLetterTargetArn"
	if name, ok := table[target].(string); ok && !strings.HasPrefix(name, "arn:") {
		table = maps.Clone(table)
		table[target] = sqsapi.QueueARN(name)
	}
	text, err := json.Marshal(table)
	if err != nil {
		return "", fmt.Errorf("want a table that JSON can express")
	}
	return string(text), nil
}

// assembleSQS makes the SQS surface, and the HTTP server of the SQS listener.
func (s *Server) assembleSQS(config *Config, hosts guard.Hosts) (err error) {
	options := sqsapi.Options{
		Broker: s.broker, Logger: s.log, ReadTimeout: config.ReadTimeout, WriteTimeout: config.WriteTimeout,
		StrictMinute: config.SQS.StrictMinute, ManagedSSE: config.SQS.Compatibility != "", Shared: s.shared, TakeOver: *config.SQS.TakeOver, Hosts: hosts,
	}
	if config.SQS.CredentialsFile != "" {
		if options.Credentials, err = sqsapi.ReadCredentials(config.SQS.CredentialsFile); err != nil {
			return err
		}
	}
	s.sqs = sqsapi.New(options)
	s.sqsSigned = s.sqs.Signed()
	own := s.sqsSigned
	if config.SQS.Unsigned {
		own = s.sqs.Unsigned()
	}
	if config.SQS.Compatibility != "" {
		own = sqsapi.Compatible(own)
	}
	s.sqsHTTP = s.httpServer(config, own)
	return nil
}

// readCredentials reads the credentials file; nil if none is configured.
func (s *Server) readCredentials() (*sqsapi.Credentials, error) {
	path := s.Config().SQS.CredentialsFile
	if path == "" {
		return nil, nil
	}
	return sqsapi.ReadCredentials(path)
}

// serveSQS serves the SQS listener.
func (s *Server) serveSQS(_ context.Context, l net.Listener) error { return s.sqsHTTP.Serve(l) }
