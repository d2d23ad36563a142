package faulty

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

var defaultFaults = []Saboteur{
	{
		Name: "has-no-default-limit", Breaks: "DLQ-1",
		What: "A queue created without a delivery limit has none.",
		Wrap: perOpener(func(b *wrapper) backend {
			return &changesNew{b, func(config *driver.Config) { orElse(&config.MaxDeliveries, driver.Off) }}
		}),
	},
	{
		Name: "has-another-default-limit", Breaks: "DLQ-1",
		What: "A queue created without a delivery limit has a limit of 10.",
		Wrap: perOpener(func(b *wrapper) backend {
			return &changesNew{b, func(config *driver.Config) { orElse(&config.MaxDeliveries, 10) }}
		}),
	},
	{
		Name: "has-no-default-limit-when-opened", Breaks: "DLQ-1",
		What: "A queue created by opening it has no delivery limit.",
		Wrap: perOpener(func(b *wrapper) backend { return opensWithoutLimit{b} }),
	},
	{
		Name: "does-not-bound-dead-letters", Breaks: "DLQ-1",
		What: "A queue created without a bound on dead letters has none.",
		Wrap: perOpener(func(b *wrapper) backend {
			return &changesNew{b, func(config *driver.Config) { orElse(&config.MaxDead, driver.Off) }}
		}),
	},
	{
		Name: "takes-off-for-unset", Breaks: "DLQ-1",
		What: "A setting that is turned off gets its default.",
		Wrap: perOpener(func(b *wrapper) backend { return takesOffForUnset{b} }),
	},
	{
		Name: "resets-what-is-unset", Breaks: "DLQ-1",
		What: "Settings that a configuration leaves unset go back to their defaults.",
		Wrap: perOpener(func(b *wrapper) backend { return resetsUnset{b} }),
	},
	{
		Name: "reads-off-as-unset", Breaks: "DLQ-1",
		What: "A setting that is off is read back as unset.",
		Wrap: perOpener(func(b *wrapper) backend { return readsOffAsUnset{b} }),
	},
	{
		Name: "ignores-that-the-window-is-off", Breaks: "DUP-1",
		What: "A dedup window that is off is the default one.",
		Wrap: perOpener(func(b *wrapper) backend { return ignoresWindowOff{b} }),
	},
}

func orElse(value *int, otherwise int) {
	if *value == 0 {
		*value = otherwise
	}
}

// changesNew changes the configurations of new queues.
type changesNew struct {
	*wrapper
	change func(*driver.Config)
}

func (b *changesNew) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if b.inForce(ctx, name) == nil {
		b.change(&config)
	}
	return b.wrapper.ConfigureQueue(ctx, name, config)
}

type opensWithoutLimit struct{ *wrapper }

func (b opensWithoutLimit) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if b.inForce(ctx, name) == nil && driver.CheckName(name) == nil {
		if err := b.wrapper.ConfigureQueue(ctx, name, driver.Config{MaxDeliveries: driver.Off}); err != nil {
			return nil, err
		}
	}
	return b.wrapper.OpenQueue(ctx, name)
}

type takesOffForUnset struct{ *wrapper }

func (b takesOffForUnset) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	return b.wrapper.ConfigureQueue(ctx, name, config.Stored())
}

type resetsUnset struct{ *wrapper }

func (b resetsUnset) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if config.Validate() == nil {
		config = config.Resolve(nil, driver.Config{})
	}
	return b.wrapper.ConfigureQueue(ctx, name, config)
}

type readsOffAsUnset struct{ *wrapper }

func (b readsOffAsUnset) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	config, err := b.wrapper.QueueConfig(ctx, name)
	return config.Stored(), err
}

type ignoresWindowOff struct{ *wrapper }

func (b ignoresWindowOff) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if config.DedupWindow == driver.Off {
		config.DedupWindow = driver.DefaultDedupWindow
	}
	return b.wrapper.ConfigureQueue(ctx, name, config)
}
