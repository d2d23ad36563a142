package evalloop

// Names for tests of the package as others see it.
const (
	DefaultTimeout = defaultTimeout
)
