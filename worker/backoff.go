package worker

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Backoff returns how long a failed message waits before its next delivery, given
// its number of deliveries. It must be safe for concurrent use. A time that is longer
// than the backend allows is cut; a negative time is 0.
type Backoff func(deliveries int) time.Duration

// Limits of DefaultBackoff.
const (
	backoffStep = time.Minute
	backoffMax  = 15 * time.Minute
)

// DefaultBackoff waits a minute for each delivery, at most 15 minutes.
func DefaultBackoff(deliveries int) time.Duration {
	return linear(backoffStep, backoffMax, deliveries)
}

// LinearBackoff waits step for each delivery, at most longest.
func LinearBackoff(step, longest time.Duration) Backoff {
	return func(deliveries int) time.Duration { return linear(step, longest, deliveries) }
}

func linear(step, longest time.Duration, deliveries int) time.Duration {
	deliveries = max(1, deliveries)
	// Divided, because the product of a large count overflows.
	if step > 0 && time.Duration(deliveries) > longest/step {
		return longest
	}
	return min(step*time.Duration(deliveries), longest)
}

// ExponentialBackoff waits a random time between 0 and base doubled with each
// delivery, at most longest, so that messages that failed together do not come back
// together.
func ExponentialBackoff(base, longest time.Duration) Backoff {
	return func(deliveries int) time.Duration {
		full := longest
		if doublings := max(0, deliveries-1); doublings < 62 && base <= longest>>doublings {
			full = base << doublings
		}
		if full <= 0 {
			return 0
		}
		return rand.N(min(full, math.MaxInt64-1) + 1)
	}
}

// NoBackoff does not wait: messages that fail are delivered again at once. A
// message that always fails then keeps a handler busy.
func NoBackoff(int) time.Duration { return 0 }
