package deadletter

// Names for tests of the package as others see it.
const (
	DefaultVisibility = defaultVisibility
)
