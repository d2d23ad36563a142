package engine

import (
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// maxEndings is how many endings are told one by one between two calls of Endings.
const maxEndings = 64

// TellEndings makes the shard keep endings for Endings, or not.
func (s *Shard) TellEndings(on bool) { s.tellsEndings = on }

// Endings returns which messages ended since it was last called. They belong to
// the caller; Queue is not set.
func (s *Shard) Endings() []driver.Ending {
	if s.endings == nil {
		return nil
	}
	endings := *s.endings
	s.endings = nil
	return endings
}

// ended notes that a message ended.
func (s *Shard) ended(kind driver.EndingKind, e *Entry) {
	if !s.tellsEndings {
		return
	}
	ending := driver.Ending{Kind: kind, Count: 1, Reason: driver.ReasonExpired}
	if e.Extra != nil && e.Extra.Reason != "" {
		ending.Reason = e.Extra.Reason
	}
	if s.endings == nil {
		s.endings = new([]driver.Ending)
	}
	endings := *s.endings
	if len(endings) < maxEndings {
		ending.ID = strings.Clone(e.ID) // an id may share its memory with a body
		ending.Deliveries = int(e.Deliveries)
		if e.Extra != nil {
			ending.LastError = e.Extra.LastError
		}
		*s.endings = append(endings, ending)
		return
	}
	for i := maxEndings; i < len(endings); i++ {
		if more := &endings[i]; more.Kind == kind && more.Reason == ending.Reason {
			more.Count++
			return
		}
	}
	*s.endings = append(endings, ending)
}
