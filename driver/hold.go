package driver

import (
	"errors"
	"time"
)

const (
	// minMaxHold is the least Config.MaxHold. It is more nanoseconds than the
	// highest multiple that MaxHold could be in earlier versions; see package maxhold.
	minMaxHold = 2 * time.Millisecond
	// minHoldFactor is how many times the visibility it was received with a
	// delivery can always be held, however small MaxHold is.
	minHoldFactor = 10
	// longestHold keeps deadlines from overflowing.
	longestHold = 1 << 62
)

// HoldBound returns how long after its delivery a message that was received with
// this visibility can be held at most: maxHold, or minHoldFactor times the
// visibility if that is longer. It returns 0 if maxHold is off: there is no bound.
func HoldBound(maxHold, visibility time.Duration) time.Duration {
	if maxHold <= 0 {
		return 0
	}
	return min(max(maxHold, minHoldFactor*visibility), longestHold)
}

// GrantedAsAsked returns what Queue.Extend grants where nothing is cut: for each
// position that err does not say has failed, the visibility that was asked for.
func GrantedAsAsked(extensions []Extension, err error) []time.Duration {
	if _, ok := errors.AsType[*BatchError](err); err != nil && !ok {
		return nil
	}
	granted := make([]time.Duration, len(extensions))
	for i := range extensions {
		if At(err, i) == nil {
			granted[i] = extensions[i].Visibility
		}
	}
	return granted
}
