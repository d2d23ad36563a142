package mainloop

// Names for tests of the package as others see it.
const (
	MinDeadline     = minDeadline
	DefaultTag      = defaultTag
	DefaultMaxTurns = defaultMaxTurns
)
