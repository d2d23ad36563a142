package console

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// FuzzFilter: whatever an address has, the filter of a list stays within its limits, or names what to correct.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{
		"", "state=in_flight&limit=200", "state=lost", "attribute=a%3Db&older=90s", "attribute=a", "priority=-1", "priority=99999999999999999999", "older=-1s", "limit=-5",
		"cursor=r.d.x", "cursor=%00", "reason=fatal&text=%00%ff", "id=+x+&group=%3Cscript%3E",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		filter, problem := parseFilter(values)
		if problem != "" {
			return
		}
		query := filter.Query
		if query.Limit < 1 || query.Limit > mostMessages || filter.Priority != nil && *filter.Priority > driver.MaxPriority || len(query.States) > 1 {
			t.Errorf("%q: %+v", text, filter)
		}
		if err := query.Check(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		filter.Matches(new(broker.Peeked), time.Now())
	})
}

// FuzzNextPage: a login and a change lead to a page of the console, whatever the form has.
func FuzzNextPage(f *testing.F) {
	for _, text := range []string{"", "queues?q=a", "//evil.example/queues", "https://evil.example", `\\evil.example`, "/queues", "./../queues", "javascript:alert(1)", "queue?name=%0d%0aSet-Cookie:x", "%2f%2fevil"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		next := nextPage(text)
		parsed, err := url.Parse(next)
		if err != nil || !strings.HasPrefix(next, "./") || parsed.Host != "" || parsed.Scheme != "" || screenAt(strings.TrimPrefix(parsed.Path, "./")) == nil || strings.ContainsAny(next, "\r\n") {
			t.Errorf("%q leads to %q: %v", text, next, err)
		}
	})
}
