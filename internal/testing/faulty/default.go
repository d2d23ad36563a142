package faulty

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

var defaultFaults = []Saboteur{
	{Name: "has-no-default-limit", Breaks: "DLQ-1",
		What: "A queue created without a delivery limit has none.",
		on:   hooks{configure: alterNew(func(c *driver.Config) { orElse(&c.MaxDeliveries, driver.Off) })}},
	{Name: "has-another-default-limit", Breaks: "DLQ-1",
		What: "A queue created without a delivery limit has a limit of 10.",
		on:   hooks{configure: alterNew(func(c *driver.Config) { orElse(&c.MaxDeliveries, 10) })}},
	{Name: "has-no-default-limit-when-opened", Breaks: "DLQ-1",
		What: "A queue created by opening it has no delivery limit.",
		on:   hooks{beforeOpen: createWith(driver.Config{MaxDeliveries: driver.Off})}},
	{Name: "does-not-bound-dead-letters", Breaks: "DLQ-1",
		What: "A queue created without a bound on dead letters has none.",
		on:   hooks{configure: alterNew(func(c *driver.Config) { orElse(&c.MaxDead, driver.Off) })}},
	{Name: "takes-off-for-unset", Breaks: "DLQ-1",
		What: "A setting that is turned off gets its default.",
		on:   hooks{configure: alterConfig(func(c *driver.Config) { *c = c.Stored() })}},
	{Name: "resets-what-is-unset", Breaks: "DLQ-1",
		What: "Settings that a configuration leaves unset go back to their defaults.",
		on:   hooks{configure: alterConfig(func(c *driver.Config) { set(c.Validate() == nil, c, c.Resolve(nil, driver.Config{})) })}},
	{Name: "reads-off-as-unset", Breaks: "DLQ-1",
		What: "A setting that is off is read back as unset.",
		on:   hooks{queueConfig: alterRead(func(_ *wrapper, _ string, c *driver.Config) { *c = c.Stored() })}},
	{Name: "ignores-that-the-window-is-off", Breaks: "DUP-1",
		What: "A dedup window that is off is the default one.",
		on: hooks{configure: alterConfig(func(c *driver.Config) {
			set(c.DedupWindow == driver.Off, &c.DedupWindow, driver.DefaultDedupWindow)
		})}},
}

func orElse(value *int, otherwise int) {
	if *value == 0 {
		*value = otherwise
	}
}

// alterNew changes the configurations of new queues.
func alterNew(change func(*driver.Config)) func(*wrapper, context.Context, string, driver.Config) error {
	return func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
		if b.inForce(ctx, name) == nil {
			change(&config)
		}
		return b.ConfigureQueue(ctx, name, config)
	}
}

// createWith gives new queues that are opened a configuration.
func createWith(config driver.Config) func(*wrapper, context.Context, string) error {
	return func(b *wrapper, ctx context.Context, name string) error {
		if b.inForce(ctx, name) != nil || driver.CheckName(name) != nil {
			return nil
		}
		return b.ConfigureQueue(ctx, name, config)
	}
}
