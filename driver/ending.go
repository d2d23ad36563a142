package driver

// An Ending says that a message died, that retention removed it, or that it was a duplicate.
type Ending struct {
	Queue string
	Kind  EndingKind
	// Count is how many messages ended. It is 1, unless very many ended at once:
	// then the first of them are told one by one and the others together,
	// without ID, Deliveries and LastError.
	Count int
	ID    string
	// Reason is why it died; ReasonExpired for EndingDropped.
	Reason     Reason
	Deliveries int
	LastError  string
}

// An EndingKind says what became of a message.
type EndingKind string

// The kinds of endings.
const (
	// EndingDied: it became a dead letter, or went to Config.DeadLetterTo.
	EndingDied EndingKind = "died"
	// EndingRemoved: it was a dead letter and is past Config.RetainDead.
	EndingRemoved EndingKind = "removed"
	// EndingDropped: it is past Config.RetainReady or its time to live, and
	// Config.DropExpired is set.
	EndingDropped EndingKind = "dropped"
	// EndingDuplicate: a transaction of a caller had sent it (pgbox.SendTx), and its key was taken
	// when it was moved into the queue. LastError says by which message; there is no Reason.
	EndingDuplicate EndingKind = "duplicate"
)

// An Observable backend tells of endings. Openers implement it.
type Observable interface {
	// Observe calls f for every ending in any queue of the backend that this
	// process carries out, until stop is called. Where several processes share a
	// backend, each ending is told in one of them. An ending whose answer a
	// broken connection lost may be told in none.
	//
	// f is called while the queue is locked: it must not block, and must not call
	// the backend. It may be called from many goroutines at once. Endings that
	// happened while the backend was opened are told to its first observer.
	Observe(f func(Ending)) (stop func())
}
