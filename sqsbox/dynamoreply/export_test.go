package dynamoreply

import "time"

// Now returns the time that the store believes it is at DynamoDB.
func (s *Store) Now() time.Time { return s.clock.now() }
