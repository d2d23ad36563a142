// Package activity has the type in which loops and dead-letter consumers tell a
// worker.Group what they are doing. It is a package of its own because package
// worker, which exports the type, imports package deadletter, which uses it.
package activity

import "time"

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
	// DeadLettersFailing says that the last dead letter could not be written.
	DeadLettersFailing bool
}
