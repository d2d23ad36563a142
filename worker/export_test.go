package worker

// Names for tests of the package as others see it.
const (
	DefaultBatchSize       = defaultBatchSize
	DefaultBatchFill       = defaultBatchFill
	DefaultShutdownTimeout = defaultShutdownTimeout
	DefaultWatchdogGrace   = defaultWatchdogGrace
	DefaultWatchdog        = defaultWatchdog
	DefaultVisibility      = defaultVisibility
	DefaultWait            = defaultWait
	DefaultDrain           = defaultDrain
	MaxConcurrency         = maxConcurrency
)
