package faulty

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

var annotationFaults = []Saboteur{
	{Name: "cuts-annotations", Breaks: "SVC-1",
		What: "Only the first four kilobytes of an annotation are kept.",
		on: hooks{queueConfig: alterRead(func(_ *wrapper, _ string, config *driver.Config) {
			config.Annotation = config.Annotation[:min(len(config.Annotation), 4096)]
		})}},
	{Name: "forgets-the-annotation-when-configured-again", Breaks: "SVC-1",
		What: "When a queue is configured again, its annotation is gone.",
		on: hooks{
			configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
				err := b.ConfigureQueue(ctx, name, config)
				if err == nil {
					add(state[table[string, int]](b), name, 1)
				}
				return err
			},
			queueConfig: alterRead(func(b *wrapper, name string, config *driver.Config) {
				if state[table[string, int]](b).at(name) > 1 {
					config.Annotation = ""
				}
			}),
		}},
	{Name: "keeps-the-first-annotation", Breaks: "SVC-1",
		What: "An annotation cannot be removed.",
		on: hooks{
			configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
				err := b.ConfigureQueue(ctx, name, config)
				if err == nil && config.Annotation != "" {
					state[table[string, string]](b).put(name, config.Annotation)
				}
				return err
			},
			queueConfig: alterRead(func(b *wrapper, name string, config *driver.Config) {
				if config.Annotation == "" {
					config.Annotation = state[table[string, string]](b).at(name)
				}
			}),
		}},
	{Name: "takes-any-annotation", Breaks: "SVC-1",
		What: "A configuration with an annotation that is too long is accepted and ignored.",
		on: hooks{configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
			if len(config.Annotation) > driver.MaxAnnotationBytes {
				return nil
			}
			return b.ConfigureQueue(ctx, name, config)
		}}},
	{Name: "forgets-the-annotation-on-restart", Breaks: "SVC-1",
		What: "After a restart a queue has no annotation.",
		restart: func(q *queue, ctx context.Context) error {
			return q.changeStored(ctx, func(config *driver.Config) bool {
				annotated := config.Annotation != ""
				config.Annotation = ""
				return annotated
			})
		}},
}
