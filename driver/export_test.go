package driver

// Names for tests of the package as others see it.
const (
	MinMaxHold      = minMaxHold
	DefaultDedupMax = defaultDedupMax
)
