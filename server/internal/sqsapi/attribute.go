package sqsapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// The attributes of queues that need special treatment.
const (
	attributeAll          = "All"
	attributeFIFO         = "FifoQueue"
	attributeRedrive      = "RedrivePolicy"
	attributeRedriveAllow = "RedriveAllowPolicy"
	attributePolicy       = "Policy"
	attributeScope        = "DeduplicationScope"
	attributeThroughput   = "FifoThroughputLimit"
	attributeContentDedup = "ContentBasedDeduplication"
	attributeKMSKey       = "KmsMasterKeyId"
	attributeKMSReuse     = "KmsDataKeyReusePeriodSeconds"
	attributeSSE          = "SqsManagedSseEnabled"
)

// A queueAttribute is an attribute that can be set.
type queueAttribute struct {
	// set reads the value into the settings; false means that it is invalid.
	set func(s *settings, value string) bool
	// get returns the value, and false if the queue has none.
	get func(s *settings) (string, bool)
	// fifo: only FIFO queues have the attribute.
	fifo bool
	// want describes the values that set accepts.
	want string
}

// number returns an attribute that is a whole number within bounds.
func number(field func(*settings) *int, low, high int) queueAttribute {
	return queueAttribute{
		set: func(s *settings, value string) bool {
			n, err := strconv.Atoi(value)
			if err != nil || n < low || n > high {
				return false
			}
			*field(s) = n
			return true
		},
		get:  func(s *settings) (string, bool) { return strconv.Itoa(*field(s)), true },
		want: fmt.Sprintf("a whole number from %d to %d", low, high),
	}
}

// flag returns an attribute that is true or false.
func flag(field func(*settings) *bool, fifo bool) queueAttribute {
	return queueAttribute{
		set: func(s *settings, value string) bool {
			switch value {
			case "true", "True", "TRUE":
				*field(s) = true
			case "false", "False", "FALSE":
				*field(s) = false
			default:
				return false
			}
			return true
		},
		get:  func(s *settings) (string, bool) { return strconv.FormatBool(*field(s)), true },
		fifo: fifo,
		want: "true or false",
	}
}

// word returns an attribute with few values, of which the first is the default.
func word(field func(*settings) *string, values ...string) queueAttribute {
	return queueAttribute{
		set: func(s *settings, value string) bool {
			if !slices.Contains(values, value) {
				return false
			}
			*field(s) = value
			return true
		},
		get: func(s *settings) (string, bool) {
			if value := *field(s); value != "" {
				return value, true
			}
			return values[0], true
		},
		fifo: true,
		want: strings.Join(values, " or "),
	}
}

// optional returns an attribute with a text; an empty text removes it.
func optional(field func(*settings) *string, valid func(string) bool, want string) queueAttribute {
	return queueAttribute{
		set: func(s *settings, value string) bool {
			if value != "" && !valid(value) {
				return false
			}
			*field(s) = value
			return true
		},
		get:  func(s *settings) (string, bool) { return *field(s), *field(s) != "" },
		want: want,
	}
}

// maxKMSKeyBytes is longer than any ARN of a key.
const maxKMSKeyBytes = 2048

// queueAttributes are the attributes that can be set and read.
var queueAttributes = map[string]queueAttribute{
	"VisibilityTimeout":             number(func(s *settings) *int { return &s.Visibility }, 0, maxVisibilitySeconds),
	"DelaySeconds":                  number(func(s *settings) *int { return &s.Delay }, 0, maxDelaySeconds),
	"ReceiveMessageWaitTimeSeconds": number(func(s *settings) *int { return &s.Wait }, 0, maxWaitSeconds),
	"MaximumMessageSize":            number(func(s *settings) *int { return &s.MaxSize }, 1024, maxMessageBytes),
	"MessageRetentionPeriod":        number(func(s *settings) *int { return &s.Retention }, 60, maxRetention),
	attributeContentDedup:           flag(func(s *settings) *bool { return &s.ContentDedup }, true),
	attributeScope:                  word(func(s *settings) *string { return &s.DedupScope }, scopeQueue, scopeGroup),
	attributeThroughput:             word(func(s *settings) *string { return &s.Throughput }, limitPerQueue, limitPerGroup),
	attributePolicy:                 optional(func(s *settings) *string { return &s.Policy }, isObject, wantObject),
	attributeRedrive: {
		set:  optional(func(s *settings) *string { return &s.Redrive }, isObject, wantObject).set,
		get:  func(s *settings) (string, bool) { return s.redriveText(), s.Redrive != "" },
		want: wantObject,
	},
	attributeRedriveAllow: optional(func(s *settings) *string { return &s.RedriveAllow }, isObject, wantObject),
	attributeKMSKey: optional(func(s *settings) *string { return &s.KMSKey },
		func(v string) bool { return len(v) <= maxKMSKeyBytes }, fmt.Sprintf("at most %d bytes", maxKMSKeyBytes)),
	attributeSSE: flag(func(s *settings) *bool { return &s.SSE }, false),
	attributeKMSReuse: {
		set: number(func(s *settings) *int { return &s.KMSReuse }, 60, 86_400).set,
		get: func(s *settings) (string, bool) {
			if s.KMSReuse == 0 {
				return strconv.Itoa(defaultKMSReuse), s.KMSKey != ""
			}
			return strconv.Itoa(s.KMSReuse), s.KMSKey != "" // only queues with a key have it
		},
		want: "a whole number from 60 to 86400",
	},
}

// A fact is a read-only attribute.
type fact func(r *request, q *queue, stats *driver.Stats) string

// counted are the facts that need the stats of the queue.
var counted = map[string]fact{
	"ApproximateNumberOfMessages":           func(_ *request, _ *queue, n *driver.Stats) string { return strconv.Itoa(n.Ready) },
	"ApproximateNumberOfMessagesDelayed":    func(_ *request, _ *queue, n *driver.Stats) string { return strconv.Itoa(n.Delayed) },
	"ApproximateNumberOfMessagesNotVisible": func(_ *request, _ *queue, n *driver.Stats) string { return strconv.Itoa(n.InFlight) },
}

var facts = map[string]fact{
	"QueueArn":              func(r *request, q *queue, _ *driver.Stats) string { return r.arn(q.Queue) },
	"CreatedTimestamp":      func(_ *request, q *queue, _ *driver.Stats) string { return strconv.FormatInt(q.Created, 10) },
	"LastModifiedTimestamp": func(_ *request, q *queue, _ *driver.Stats) string { return strconv.FormatInt(q.Modified, 10) },
}

// wantObject describes a policy.
const wantObject = "a table or the text of a JSON object"

func isObject(text string) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal([]byte(text), &object) == nil && object != nil
}

// set reads attributes into the settings, in the order of their names, so that the same
// request always fails with the same error.
func (s *settings) set(attributes map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		attribute, known := queueAttributes[name]
		switch {
		case !known, name == attributeContentDedup && !s.FIFO:
			return sqswire.InvalidAttributeName.Withf("Unknown Attribute %s.", name)
		case attribute.fifo && !s.FIFO:
			return sqswire.InvalidAttributeName.Withf("You can specify the %s only when FifoQueue is set to true.", name)
		case !attribute.set(s, attributes[name]):
			return invalidAttribute(name)
		}
	}
	if err := s.encrypt(attributes); err != nil {
		return err
	}
	if s.Throughput == limitPerGroup && s.DedupScope != scopeGroup {
		// AWS requires both for high throughput.
		return sqswire.InvalidAttributeValue.Withf("The FifoThroughputLimit can be set to perMessageGroupId only when DeduplicationScope is set to messageGroup.")
	}
	return nil
}

// encrypt makes the encryption settings consistent: a queue has one kind of encryption,
// the one that was set last.
func (s *settings) encrypt(attributes map[string]string) error {
	switch {
	case attributes[attributeKMSKey] != "" && attributes[attributeSSE] != "" && s.SSE:
		return sqswire.InvalidAttributeName.Withf("You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE.")
	case attributes[attributeKMSKey] != "":
		s.SSE = false
	case attributes[attributeSSE] != "" && s.SSE:
		s.KMSKey = ""
	}
	if s.KMSKey == "" {
		s.KMSReuse = 0
	}
	return nil
}

// withoutKind returns the attributes without FifoQueue, which a FIFO queue accepts if it
// is true. Codes: InvalidAttributeName, InvalidAttributeValue.
func (q *queue) withoutKind(attributes map[string]string) (map[string]string, error) {
	value, ok := attributes[attributeFIFO]
	if !ok || !q.FIFO {
		return attributes, nil // set refuses it by name
	}
	var wanted settings
	if !fifoFlag.set(&wanted, value) {
		return nil, invalidAttribute(attributeFIFO)
	}
	if !wanted.FIFO {
		return nil, invalidReason(attributeFIFO, "Modifying queue type is not supported.")
	}
	attributes = maps.Clone(attributes)
	delete(attributes, attributeFIFO)
	return attributes, nil
}

// fifoFlag is the attribute FifoQueue.
var fifoFlag = flag(func(s *settings) *bool { return &s.FIFO }, true)

// invalidAttribute returns the error for an invalid value. AWS gives a reason only for
// policies.
func invalidAttribute(name string) *sqswire.Error {
	switch name {
	case attributeRedrive:
		return invalidReason(name, "Redrive policy is not a valid JSON map.")
	case attributeRedriveAllow:
		return invalidReason(name, "Amazon SQS can't create the redrive allow policy, as it’s in an unsupported format.")
	}
	return sqswire.InvalidAttributeValue.Withf("Invalid value for the parameter %s.", name)
}

// invalidReason is invalidAttribute with a reason.
func invalidReason(name, reason string) *sqswire.Error {
	return sqswire.InvalidAttributeValue.Withf("Invalid value for the parameter %s. Reason: %s", name, reason)
}

// differs returns the name of an attribute whose value differs from that in wanted, or "".
func (s *settings) differs(wanted *settings, attributes map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		attribute, known := queueAttributes[name]
		if !known {
			continue // FifoQueue, which follows from the name
		}
		have, _ := attribute.get(s)
		want, _ := attribute.get(wanted)
		if have != want && !sameJSON(have, want) {
			return name
		}
	}
	return ""
}

// sameJSON reports whether two texts are the same JSON object.
func sameJSON(a, b string) bool {
	if !isObject(a) || !isObject(b) {
		return false
	}
	var first, second any
	if json.Unmarshal([]byte(a), &first) != nil || json.Unmarshal([]byte(b), &second) != nil {
		return false
	}
	one, err := json.Marshal(first)
	if err != nil {
		return false
	}
	two, err := json.Marshal(second)
	return err == nil && string(one) == string(two)
}

// needsCount reports whether one of the attributes needs the stats of the queue.
func needsCount(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return name == attributeAll || counted[name] != nil })
}

// attributesOf returns the named attributes of a queue. Codes: InvalidAttributeName.
func (r *request) attributesOf(q *queue, names []string, stats *driver.Stats) (map[string]string, error) {
	found := make(map[string]string)
	add := func(name string) bool {
		if name == attributeFIFO {
			if q.FIFO {
				found[name] = "true"
			}
			return true
		}
		if fact := facts[name]; fact != nil {
			found[name] = fact(r, q, stats)
			return true
		}
		if count := counted[name]; count != nil {
			found[name] = count(r, q, stats)
			return true
		}
		attribute, known := queueAttributes[name]
		if known && (q.FIFO || !attribute.fifo) {
			if value, has := attribute.get(&q.settings); has {
				found[name] = value
			}
		}
		return known
	}
	for _, name := range names {
		if name == attributeAll {
			for _, table := range []map[string]fact{facts, counted} {
				for each := range table {
					add(each)
				}
			}
			for each := range queueAttributes {
				add(each)
			}
			add(attributeFIFO)
			continue
		}
		if !add(name) {
			return nil, sqswire.InvalidAttributeName.Withf("Unknown Attribute %s.", name)
		}
	}
	return found, nil
}
