package dispatch

// PanicError is the error of a subscriber that panicked.
type PanicError = panicError
