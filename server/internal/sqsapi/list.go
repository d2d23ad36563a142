package sqsapi

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// maxPage bounds the queues in one answer.
const maxPage = 1000

// A page is part of a sorted list of names.
type page struct {
	after string // the last name of the previous page; empty for the first
	most  int
	paged bool // the client asked for pages
	names []string
	more  bool
}

// newPage reads the paging parameters of a request.
func newPage(most *int, token string) (*page, error) {
	p := &page{most: maxPage}
	if most != nil {
		if *most < 1 || *most > maxPage {
			return nil, unnamedValue("MaxResults", "MaxResults must be an integer between 1 and 1000.")
		}
		p.most, p.paged = *most, true
	}
	if token != "" {
		after, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || len(after) == 0 {
			return nil, invalidValue("NextToken", token, "Invalid NextToken.")
		}
		p.after = string(after)
	}
	return p, nil
}

// add adds a name, and reports whether there is room for more.
func (p *page) add(name string) bool {
	if name <= p.after && p.after != "" {
		return true
	}
	if len(p.names) == p.most {
		p.more = true
		return false
	}
	p.names = append(p.names, name)
	return true
}

// token returns the token for the next page.
func (p *page) token() string {
	if !p.more || !p.paged {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(p.names[len(p.names)-1]))
}

// urls returns the URLs of the queues on the page.
func (p *page) urls(r *request) []string {
	urls := make([]string, len(p.names))
	for i, name := range p.names {
		urls[i] = r.url(name)
	}
	return urls
}

// listable reports whether a name can be in the URL of a queue unchanged. Queues with
// other names are not listed.
func listable(name string) bool {
	return strings.IndexFunc(name, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letter && c != '-' && c != '_' && c != '.'
	}) < 0
}

// listQueues lists the queues of the caller's account.
func (r *request) listQueues(ctx context.Context, in *sqswire.ListQueuesInput) (sqswire.Output, error) {
	p, err := newPage(in.MaxResults, in.NextToken)
	if err != nil {
		return nil, err
	}
	for name, err := range r.caller.Queues(ctx) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(name, in.QueueNamePrefix) && listable(name) && !p.add(name) {
			break
		}
	}
	return &sqswire.ListQueuesOutput{QueueURLs: p.urls(r), NextToken: p.token()}, nil
}

// listDeadLetterSourceQueues lists the queues that send their dead letters to one.
func (r *request) listDeadLetterSourceQueues(ctx context.Context, in *sqswire.ListDeadLetterSourceQueuesInput) (sqswire.Output, error) {
	q, err := r.find(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	p, err := newPage(in.MaxResults, in.NextToken)
	if err != nil {
		return nil, err
	}
	if err := r.caller.May(ctx, capability.OpDLQ, q.Queue); err != nil {
		return nil, err
	}
	sources, err := r.service.sourcesOf(ctx, q.TenantQueue)
	if err != nil {
		return nil, err
	}
	for _, name := range sources {
		if listable(name) && !p.add(name) {
			break
		}
	}
	return &sqswire.ListDeadLetterSourceQueuesOutput{QueueURLs: p.urls(r), NextToken: p.token()}, nil
}

// sourcesOf returns the queues of the same tenant whose dead letters go to a queue,
// in order. It reads the configuration of each.
func (s *Service) sourcesOf(ctx context.Context, target broker.TenantQueue) ([]string, error) {
	daemon, err := s.daemon(target.Tenant)
	if err != nil {
		return nil, err
	}
	var names []string
	for name, err := range daemon.Queues(ctx) {
		if err != nil {
			return nil, err
		}
		config, err := daemon.Config(ctx, name)
		if err == nil && deadLettersTo(name, &config, target.Queue) { // on an error the queue was just deleted
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
