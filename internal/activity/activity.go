// Package activity has the type in which loops and dead-letter consumers tell a
// worker.Group what they are doing. It is a package of its own because package
// worker, which exports the type, imports package deadletter, which uses it.
package activity

import "time"

// MaxProgress bounds how many handlers of one member show their progress.
const MaxProgress = 20

// A Progress is what a handler has reported about its work.
type Progress struct {
	// MessageID is the message of the handler.
	MessageID string
	// Fraction is how much of the work is done, from 0 to 1, and negative if the
	// handler does not say.
	Fraction float64
	// Text says what it is doing.
	Text string
	// At is when it reported that.
	At time.Time
}

// An Activity is what a member of a group is doing at one moment.
type Activity struct {
	// LastBeat is when the member last made progress; zero if it never ran.
	LastBeat time.Time
	// Since is since when the oldest piece of work has made no progress; zero if
	// the member is idle. MessageID is the message that the work is about, empty
	// if it is about none, and Goroutine the number of the goroutine that does it.
	Since     time.Time
	MessageID string
	Goroutine int64
	// Interrupt cancels that work with a cause. Nil means that it cannot be
	// interrupted. It does nothing once the work has ended.
	Interrupt func(cause error)
	// Progress has what running handlers have reported, the oldest report first, and at
	// most MaxProgress of them.
	Progress []Progress
	// DeadLettersFailing says that the last dead letter could not be written.
	DeadLettersFailing bool
}
