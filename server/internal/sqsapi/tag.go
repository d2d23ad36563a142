package sqsapi

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

const (
	maxTags          = 50
	maxTagKeyRunes   = 128
	maxTagValueRunes = 256
)

// checkTags checks the tags of a queue.
func checkTags(queue string, tags map[string]string) error {
	if len(tags) > maxTags {
		return sqswire.InvalidParameterValue.Withf("Too many tags added for queue %s.", queue)
	}
	for key, value := range tags {
		switch {
		case !isTagKeyLength(key):
			return tagKeyLength()
		case strings.ContainsFunc(key, notInTagKey):
			return sqswire.InvalidParameterValue.Withf("Tag keys may only contain unicode letters, digits, whitespace, or one of these symbols: _ . : / = + - @")
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return invalidValue("TagKey", key, "Tag keys that begin with aws: are reserved.")
		case utf8.RuneCountInString(value) > maxTagValueRunes:
			return invalidValue("TagValue", value, "A tag value must be at most 256 characters long.")
		}
	}
	return nil
}

func isTagKeyLength(key string) bool {
	return key != "" && utf8.RuneCountInString(key) <= maxTagKeyRunes
}

func tagKeyLength() *sqswire.Error {
	return sqswire.InvalidParameterValue.Withf("Tag keys must be between 1 and 128 characters in length.")
}

func notInTagKey(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsSpace(r) && !strings.ContainsRune("_.:/=+-@", r)
}

// tagQueue adds tags to a queue.
func (r *request) tagQueue(ctx context.Context, in *sqswire.TagQueueInput) (sqswire.Output, error) {
	q, err := r.administered(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	if len(in.Tags) == 0 {
		return nil, missing("Tags")
	}
	_, err = r.service.change(ctx, r.caller, q.TenantQueue, func(q *queue) error {
		tags := maps.Clone(q.Tags)
		if tags == nil {
			tags = make(map[string]string)
		}
		maps.Copy(tags, in.Tags)
		q.Tags = tags
		return checkTags(q.Queue, tags)
	})
	if err != nil {
		return nil, tooMuch(err)
	}
	return new(sqswire.TagQueueOutput), nil
}

// untagQueue removes tags from a queue.
func (r *request) untagQueue(ctx context.Context, in *sqswire.UntagQueueInput) (sqswire.Output, error) {
	q, err := r.administered(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	switch {
	case in.TagKeys == nil:
		return nil, missing("TagKeys")
	case len(in.TagKeys) == 0 || slices.ContainsFunc(in.TagKeys, func(key string) bool { return !isTagKeyLength(key) }):
		return nil, tagKeyLength()
	}
	_, err = r.service.change(ctx, r.caller, q.TenantQueue, func(q *queue) error {
		q.Tags = maps.Clone(q.Tags)
		for _, key := range in.TagKeys {
			delete(q.Tags, key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return new(sqswire.UntagQueueOutput), nil
}

// listQueueTags returns the tags of a queue.
func (r *request) listQueueTags(ctx context.Context, in *sqswire.ListQueueTagsInput) (sqswire.Output, error) {
	q, err := r.administered(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	return &sqswire.ListQueueTagsOutput{Tags: q.Tags}, nil
}

// administered returns a queue that the caller may administer.
func (r *request) administered(ctx context.Context, url string) (*queue, error) {
	q, err := r.find(ctx, url)
	if err != nil {
		return nil, err
	}
	return q, r.caller.May(ctx, capability.OpAdmin, q.Queue)
}
