package broker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// varying matches the parts of error texts that differ from message to message: quoted
// texts, long hexadecimal and mixed ids, and numbers.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-fA-F]{8,}\b|\d+(?:[.:]\d+)*`)

// The characters of an error text that are compared, before and after what varies was replaced.
const maxCauseText, maxCauseWords = 500, 200

// causeWords returns an error text with … in place of what varies, in one line.
func causeWords(text string) string {
	text = strings.Join(strings.Fields(firstCharacters(text, maxCauseText)), " ")
	return firstCharacters(varying.ReplaceAllString(text, "…"), maxCauseWords)
}

// firstCharacters returns the first n characters of a text, with … if it has more.
func firstCharacters(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i] + "…"
		}
		n--
	}
	return text
}

// Cause returns what a dead letter has in common with others: an id made of the reason, the type of
// the error and its text without the parts that differ from message to message, and that text.
func (p *Peeked) Cause() (id, words string) {
	words = causeWords(p.LastError)
	sum := sha256.Sum256([]byte(string(p.Reason) + "\x00" + p.ErrorType + "\x00" + words))
	return hex.EncodeToString(sum[:6]), words
}

// hasCause reports whether it is a dead letter with this cause.
func (p *Peeked) hasCause(id string) bool {
	own, _ := p.Cause()
	return p.State == driver.StateDead && own == id
}

const (
	// maxSurveyBytes bounds the memory of the causes that one survey finds: every dead letter may have its own.
	maxSurveyBytes = maxHold
	// causeBytes is about what a cause takes besides its texts.
	causeBytes = 256
)

// A Cause is what dead letters have in common, and how many of them have it.
type Cause struct {
	ID        string // of Peeked.Cause
	Reason    driver.Reason
	ErrorType string
	Words     string // the text of the errors, without the parts that differ from message to message
	Messages  int
	// First and Last are the first and the last death among them.
	First, Last time.Time
	// MessageID and LastError are of the first of them that was found. The error is cut.
	MessageID, LastError string
}

// A Survey asks which causes the dead letters of a queue have. It is a search among them; the States and the Limit of its
// Query are not used.
type Survey struct {
	Search
	// Largest is how many causes are returned; 0 means all.
	Largest int
	// See, if it is not nil, is called with each dead letter that matches.
	See func(*Peeked)
	// Selected is how many dead letters matched, and Found how many causes they have.
	Selected, Found int

	causes map[string]*Cause
	bytes  int // of the causes, about
}

// Causes groups the dead letters of a queue that match by cause, largest first, and notes in s how far it looked: in the order
// of deaths. A chain of surveys by cursor counts each dead letter once, and its causes add up by ID. A survey also ends where
// its causes take too much memory. It needs a token for dlq, whose quotas count each cause as a message, and each message for See.
// It may block on I/O. Codes: ErrInvalid, ErrNotFound, ErrUnsupported (the backend keeps no dead letters, or cannot search them), ErrUnavailable.
func (c Caller) Causes(ctx context.Context, queue string, s *Survey) ([]Cause, error) {
	grant, err := c.authorize(ctx, capability.OpDLQ, queue)
	if err == nil {
		err = c.broker.admit("causes", queue, lastForReads)
	}
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return nil, err
	}
	s.Query.States = []driver.State{driver.StateDead}
	parts, err := s.parts()
	if err != nil {
		return nil, err
	}
	s.Looked, s.causes = make(map[driver.State]int), make(map[string]*Cause)
	s.Query.Limit, s.Selected, s.bytes, s.Cut = 0, 0, 0, false
	err = c.searchParts(ctx, queue, &s.Search, parts, func(m Peeked) bool {
		s.add(&c, grant, &m)
		s.Cut = s.bytes >= maxSurveyBytes
		return !s.Cut
	})
	s.Cursor = rest(parts)
	if err != nil {
		return nil, err
	}
	return s.largest(), nil
}

func (s *Survey) check() error {
	if s.Largest < 0 {
		return &driver.Error{Code: driver.ErrInvalid, Op: "causes", Field: "Limit", Detail: "cannot be negative; 0 means all"}
	}
	return s.Query.Check()
}

// add counts a dead letter.
func (s *Survey) add(c *Caller, grant *verify.Grant, m *Peeked) {
	s.Selected++
	id, words := m.Cause()
	known := s.causes[id]
	if known == nil {
		known = &Cause{
			ID: id, Reason: m.Reason, ErrorType: strings.Clone(m.ErrorType), Words: strings.Clone(words), First: m.DeadAt, Last: m.DeadAt,
			MessageID: m.ID, LastError: strings.Clone(firstCharacters(m.LastError, maxCauseText)),
		}
		s.causes[id] = known
		s.bytes += causeBytes + len(known.ErrorType) + len(known.Words) + len(known.LastError)
		if !c.unmetered {
			grant.Charge(1, int64(len(known.LastError)))
		}
	}
	known.Messages++
	if m.DeadAt.Before(known.First) {
		known.First = m.DeadAt
	}
	if m.DeadAt.After(known.Last) {
		known.Last = m.DeadAt
	}
	if s.See != nil {
		c.charge(grant, &m.Message)
		s.See(m)
	}
}

// largest returns the causes, those with most dead letters first, and of equal ones that with the first death.
func (s *Survey) largest() []Cause {
	all := make([]Cause, 0, len(s.causes))
	for _, cause := range s.causes {
		all = append(all, *cause)
	}
	s.causes, s.Found = nil, len(all)
	slices.SortFunc(all, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), a.First.Compare(b.First), strings.Compare(a.ID, b.ID))
	})
	if s.Largest > 0 && s.Largest < len(all) {
		all = slices.Clone(all[:s.Largest])
	}
	return all
}
