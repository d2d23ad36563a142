package dynamoreply

import "time"

// Now returns the store's time, corrected by DynamoDB's clock.
func (s *Store) Now() time.Time { return s.clock.now() }
