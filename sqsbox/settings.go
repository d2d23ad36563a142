package sqsbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// settings are the attributes of a queue that the backend uses, as of when it was opened
// or configured here.
type settings struct {
	traits driver.Traits
	config driver.Config
	// maxMessage is the queue's own limit on body and attributes.
	maxMessage int
	// waits: the queue has a ReceiveMessageWaitTimeSeconds of its own.
	waits bool
}

// metadataRoom is kept free for the metadata of a body that is not text.
const metadataRoom = 256

// readSettings reads settings from the attributes of a queue.
func readSettings(b *Backend, physical string, attributes map[string]string) *settings {
	fifo := strings.HasSuffix(physical, fifoSuffix)
	s := &settings{maxMessage: readNumber(attributes["MaximumMessageSize"], maxBatchBytes)}
	s.waits = readNumber(attributes["ReceiveMessageWaitTimeSeconds"], 0) > 0
	s.config = driver.Config{
		StrictGroups: fifo, MaxInFlight: maxInFlight, DropExpired: true,
		RetainReady: driver.Retention{Age: time.Duration(readNumber(attributes["MessageRetentionPeriod"], 0)) * time.Second},
	}
	s.traits = driver.Traits{
		Ordering: driver.OrderingNone, Durability: driver.DurabilityReplicated,
		Groups: true, StrictGroups: fifo, Move: true, DeliverAt: !fifo,
		MaxBodyBytes:  (s.maxMessage - metadataRoom) / 4 * 3, // fits even as base64
		MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
		MaxBatch: maxEntries, MaxDelay: maxDelay, MaxVisibility: driver.DefaultMaxVisibility,
		PurgeCooldown: purgeCooldown,
	}
	if fifo {
		s.traits.Ordering, s.traits.MaxDelay = driver.OrderingPerShard, 0
		s.traits.DedupWindow, s.config.DedupWindow = dedupWindow, dedupWindow
	}
	if policy, ok := readRedrive(attributes["RedrivePolicy"]); ok {
		s.config.MaxDeliveries = policy.most()
		s.config.DeadLetterTo = b.nameOf(nameInARN(policy.Target))
	}
	window := s.config.DedupWindow
	s.config.DedupMax = driver.Off
	s.config.PriorityAging = driver.Off
	s.config = s.config.Effective()
	if window == 0 {
		s.config.DedupWindow = driver.Off // a standard queue has no dedup keys
	}
	return s
}

func readNumber(text string, otherwise int) int {
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		return otherwise
	}
	return n
}

// nameOf returns the name of a queue from its name at SQS. A name that was cut is
// returned as SQS has it, because its tags are not read here.
func (b *Backend) nameOf(physical string) string {
	if name, ok := logicalName(b.options.Prefix, physical); ok {
		return name
	}
	return physical
}

// A redrivePolicy is the attribute RedrivePolicy. SQS accepts maxReceiveCount as a number
// and as text.
type redrivePolicy struct {
	Target      string `json:"deadLetterTargetArn"`
	MaxReceives any    `json:"maxReceiveCount"`
}

func (p redrivePolicy) most() int {
	switch n := p.MaxReceives.(type) {
	case float64:
		return int(n)
	case string:
		return readNumber(n, 0)
	}
	return 0
}

func readRedrive(text string) (policy redrivePolicy, ok bool) {
	if text == "" {
		return policy, false
	}
	err := json.Unmarshal([]byte(text), &policy)
	return policy, err == nil && policy.Target != "" && policy.most() > 0
}

// newQueueAttributes returns the attributes of a new queue: it keeps messages as long as
// SQS allows, unless more says otherwise.
func newQueueAttributes(physical string, more map[string]string) map[string]string {
	attributes := map[string]string{"MessageRetentionPeriod": seconds(longestRetention)}
	if strings.HasSuffix(physical, fifoSuffix) {
		attributes["FifoQueue"] = "true"
	}
	maps.Copy(attributes, more)
	return attributes
}

func seconds(d time.Duration) string { return strconv.Itoa(wholeSeconds(d)) }

// wholeSeconds returns d in seconds, rounded up so that nothing ends early.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// checkConfig returns ErrInvalid for a config that is invalid on every backend, and
// ErrUnsupported, with the field, for one that SQS does not support.
func checkConfig(name string, config driver.Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	fifo := config.StrictGroups || strings.HasSuffix(name, fifoSuffix)
	for _, setting := range []struct {
		field  string
		asked  bool
		reason string
	}{
		{"Shards", config.Shards > 1, "SQS does not support shards"},
		{"FairGroups", config.FairGroups, "standard queues of SQS are always fair, without a promise which message is next"},
		{"GroupLimits", config.GroupLimits != "", "groups of SQS have no limits"},
		{"MaxMessages", config.MaxMessages > 0, "SQS does not limit the size of queues"},
		{"MaxBytes", config.MaxBytes > 0, "SQS does not limit the size of queues"},
		{"MaxInFlight", config.MaxInFlight > 0 && config.MaxInFlight != maxInFlight, fmt.Sprintf("must be %d on SQS", maxInFlight)},
		{"MaxDead", config.MaxDead > 0, "SQS keeps dead letters in another queue, and does not limit its size"},
		{"DedupWindow", config.DedupWindow > 0 && !fifo, "standard queues of SQS have no dedup window"},
		{"DedupWindow", config.DedupWindow == driver.Off && fifo, fmt.Sprintf("must be %v in FIFO queues of SQS", dedupWindow)},
		{"DedupWindow", config.DedupWindow > 0 && config.DedupWindow != dedupWindow, fmt.Sprintf("must be %v in FIFO queues of SQS", dedupWindow)},
		{"DedupMax", config.DedupMax > 0, "SQS does not limit the number of dedup keys"},
		{"RetainReady.Count", config.RetainReady.Count > 0, "SQS does not limit the number of messages"},
		{"RetainReady.Age", config.RetainReady.Age > 0 && !config.DropExpired, "SQS drops expired messages: set DropExpired"},
		{"RetainDead", config.RetainDead.Age > 0 || config.RetainDead.Count > 0, "SQS keeps dead letters in another queue: set its retention"},
		{"TTL", config.TTL > 0, "messages of SQS have no time to live; set RetainReady.Age"},
		{"PriorityAging", config.PriorityAging > 0, "messages of SQS have no priorities"},
		{"MaxHold", config.MaxHold > 0, fmt.Sprintf("SQS limits every delivery to %v in all", driver.DefaultMaxVisibility)},
		{"Annotation", config.Annotation != "", "SQS does not store annotations"},
		{"MaxDeliveries", config.MaxDeliveries > 0 && config.DeadLetterTo == "", "SQS dead-letters into another queue: set DeadLetterTo"},
	} {
		if setting.asked {
			return configError(driver.ErrUnsupported, setting.field, setting.reason)
		}
	}
	return checkRanges(config)
}

// checkRanges returns ErrUnsupported for valid numbers that are out of range at SQS.
func checkRanges(config driver.Config) error {
	if config.MaxDeliveries > maxReceives {
		return configError(driver.ErrUnsupported, "MaxDeliveries", fmt.Sprintf("%d is out of range; SQS allows 1 to %d", config.MaxDeliveries, maxReceives))
	}
	if age := config.RetainReady.Age; age > 0 && (age < shortestRetention || age > longestRetention || age%time.Second != 0) {
		return configError(driver.ErrUnsupported, "RetainReady.Age", fmt.Sprintf("%v is out of range; SQS allows whole seconds from %v to %v", age, shortestRetention, longestRetention))
	}
	return nil
}

func configError(code driver.Code, field, detail string) error {
	return &driver.Error{Code: code, Op: "configure", Field: field, Detail: detail}
}
