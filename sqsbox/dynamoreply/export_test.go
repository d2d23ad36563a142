package dynamoreply

import "time"

// Store is the type of what Open returns.
type Store = store

// The defaults of Options.
const (
	DefaultPollMax  = defaultPollMax
	DefaultTimeout  = defaultTimeout
	DefaultAttempts = defaultAttempts
)

// Now returns the store's time, corrected by DynamoDB's clock.
func (s *store) Now() time.Time { return s.clock.now() }

// Names for tests of the package as others see it.
const (
	MaxAnswerBytes = maxAnswerBytes
)
