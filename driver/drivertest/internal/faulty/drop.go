package faulty

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var dropFaults = []Saboteur{
	{Name: "keeps-the-dropped-as-dead", Breaks: "RET-2",
		What: "A message that waited too long becomes a dead letter, although the queue drops expired messages.",
		on:   hooks{config: func(config *driver.Config) { config.DropExpired = false }}},
	{Name: "sends-the-dropped-where-the-dead-go", Breaks: "RET-2",
		What: "A message that waited too long goes to the dead-letter queue, if there is one.",
		on:   hooks{config: func(config *driver.Config) { config.DropExpired = config.DropExpired && config.DeadLetterTo == "" }}},
	{Name: "drops-nothing-while-the-dead-are-full", Breaks: "RET-2",
		What: "If dead letters are bounded, a message that waited too long becomes one, or waits for room.",
		on:   hooks{config: func(config *driver.Config) { config.DropExpired = config.DropExpired && config.MaxDead == 0 }}},
	{Name: "drops-late", Breaks: "RET-2",
		What: "A message is dropped a tenth of a second late.",
		on: hooks{config: func(config *driver.Config) {
			if config.DropExpired && config.RetainReady.Age > 0 {
				config.RetainReady.Age += 100 * time.Millisecond
			}
		}}},
	{Name: "drops-too-few", Breaks: "RET-2",
		What: "A queue that drops messages keeps one more than configured.",
		on: hooks{config: func(config *driver.Config) {
			if config.DropExpired && config.RetainReady.Count > 0 {
				config.RetainReady.Count++
			}
		}}},
	{Name: "drops-the-worn-out", Breaks: "RET-2",
		What: "A queue that drops old messages also drops those that reached the delivery limit.",
		on:   discardDead(driver.ReasonMaxDeliveries, func(config driver.Config) bool { return config.DropExpired })},
}
