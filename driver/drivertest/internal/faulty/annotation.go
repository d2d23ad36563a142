package faulty

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

var annotationFaults = []Saboteur{
	{
		Name: "cuts-annotations", Breaks: "SVC-1",
		What: "Only the first four kilobytes of an annotation are kept.",
		Wrap: changesAnnotation(func(_ int, annotation string) string { return annotation[:min(len(annotation), 4096)] }),
	},
	{
		Name: "forgets-the-annotation-when-configured-again", Breaks: "SVC-1",
		What: "When a queue is configured again, its annotation is gone.",
		Wrap: changesAnnotation(func(times int, annotation string) string {
			if times > 1 {
				return ""
			}
			return annotation
		}),
	},
	{
		Name: "keeps-the-first-annotation", Breaks: "SVC-1",
		What: "An annotation cannot be removed.",
		Wrap: perOpener(func(b *wrapper) backend { return &keepsAnnotation{wrapper: b} }),
	},
	{
		Name: "takes-any-annotation", Breaks: "SVC-1",
		What: "A configuration with an annotation that is too long is accepted and ignored.",
		Wrap: perOpener(func(b *wrapper) backend { return takesAnyAnnotation{b} }),
	},
	{
		Name: "forgets-the-annotation-on-restart", Breaks: "SVC-1",
		What: "After a restart a queue has no annotation.",
		Wrap: afterRestart(func(ctx context.Context, q passThrough) error {
			admin := q.wrapper.inner.(driver.Admin)
			config, err := admin.QueueConfig(ctx, q.name)
			if err != nil || config.Annotation == "" {
				return err
			}
			config.Annotation = ""
			return admin.ConfigureQueue(ctx, q.name, config)
		}),
	},
}

// changesAnnotation changes annotations as they are read back. It gets how often the queue was
// configured.
func changesAnnotation(change func(times int, annotation string) string) func(driver.Opener) driver.Opener {
	return perOpener(func(b *wrapper) backend { return &annotationChanger{wrapper: b, change: change} })
}

type annotationChanger struct {
	*wrapper
	times  table[string, int]
	change func(times int, annotation string) string
}

func (b *annotationChanger) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	err := b.wrapper.ConfigureQueue(ctx, name, config)
	if err == nil {
		add(&b.times, name, 1)
	}
	return err
}

func (b *annotationChanger) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	config, err := b.wrapper.QueueConfig(ctx, name)
	config.Annotation = b.change(add(&b.times, name, 0), config.Annotation)
	return config, err
}

type keepsAnnotation struct {
	*wrapper
	first table[string, string]
}

func (b *keepsAnnotation) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	err := b.wrapper.ConfigureQueue(ctx, name, config)
	if err == nil && config.Annotation != "" {
		b.first.put(name, config.Annotation)
	}
	return err
}

func (b *keepsAnnotation) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	config, err := b.wrapper.QueueConfig(ctx, name)
	if kept, ok := b.first.get(name); ok && config.Annotation == "" {
		config.Annotation = kept
	}
	return config, err
}

type takesAnyAnnotation struct{ *wrapper }

func (b takesAnyAnnotation) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if len(config.Annotation) > driver.MaxAnnotationBytes {
		return nil
	}
	return b.wrapper.ConfigureQueue(ctx, name, config)
}
