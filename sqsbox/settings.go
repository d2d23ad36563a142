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

// settings are what the backend needs to know of a queue, as it was when the queue
// was opened or configured here.
type settings struct {
	traits driver.Traits
	config driver.Config
	// maxMessage is the queue's own limit on body and attributes.
	maxMessage int
	// waits: receives that do not say how long they wait do wait.
	waits bool
}

// slipRoom is kept free for what goes with a body that is not text.
const slipRoom = 256

// readSettings makes settings of the attributes of a queue.
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
		Groups: true, StrictGroups: fifo, Move: true,
		MaxBodyBytes:  (s.maxMessage - slipRoom) / 4 * 3, // what fits even as base64
		MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
		MaxBatch: maxEntries, MaxDelay: driver.DefaultMaxDelay, MaxVisibility: driver.DefaultMaxVisibility,
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
	s.config = s.config.Effective()
	if window == 0 {
		s.config.DedupWindow = driver.Off // a standard queue takes no keys
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

// nameOf is what a queue that SQS calls so is called here. A name that was cut stays
// as it is: it opens the same queue only if nobody made it longer.
func (b *Backend) nameOf(physical string) string {
	if name, ok := logicalName(b.options.Prefix, physical); ok {
		return name
	}
	return physical
}

// A redrivePolicy is the attribute RedrivePolicy. SQS takes the number as a number
// and as a text.
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

// newQueueAttributes are those a queue is made with: it keeps messages as long as
// SQS can, unless it is told otherwise.
func newQueueAttributes(physical string, more map[string]string) map[string]string {
	attributes := map[string]string{"MessageRetentionPeriod": seconds(longestRetention)}
	if strings.HasSuffix(physical, fifoSuffix) {
		attributes["FifoQueue"] = "true"
	}
	maps.Copy(attributes, more)
	return attributes
}

func seconds(d time.Duration) string { return strconv.Itoa(wholeSeconds(d)) }

// wholeSeconds is what SQS counts in. It rounds up: nothing ends early.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// checkConfig returns ErrInvalid for what no backend can honour, and ErrUnsupported,
// naming the field, for what SQS cannot.
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
		{"Shards", config.Shards > 1, "SQS does not let queues be split"},
		{"FairGroups", config.FairGroups, "standard queues of SQS have them without asking, and do not promise which message is next"},
		{"MaxMessages", config.MaxMessages > 0, "queues of SQS have no bound"},
		{"MaxBytes", config.MaxBytes > 0, "queues of SQS have no bound"},
		{"MaxInFlight", config.MaxInFlight > 0 && config.MaxInFlight != maxInFlight, fmt.Sprintf("it is %d in all queues of SQS", maxInFlight)},
		{"MaxDead", config.MaxDead > 0, "SQS keeps dead letters in another queue, which has no bound"},
		{"DedupWindow", config.DedupWindow > 0 && !fifo, "standard queues of SQS have none"},
		{"DedupWindow", config.DedupWindow == driver.Off && fifo, fmt.Sprintf("it is %v in all FIFO queues of SQS", dedupWindow)},
		{"DedupWindow", config.DedupWindow > 0 && config.DedupWindow != dedupWindow, fmt.Sprintf("it is %v in all FIFO queues of SQS", dedupWindow)},
		{"DedupMax", config.DedupMax > 0, "SQS remembers any number of keys"},
		{"RetainReady.Count", config.RetainReady.Count > 0, "SQS keeps any number of messages"},
		{"RetainReady.Age", config.RetainReady.Age > 0 && !config.DropExpired, "SQS removes what is too old without a trace, which DropExpired must allow"},
		{"RetainDead", config.RetainDead.Age > 0 || config.RetainDead.Count > 0, "SQS keeps dead letters in another queue, which has a retention of its own"},
		{"MaxHold", config.MaxHold > 0, fmt.Sprintf("SQS bounds the time of a delivery by %v in all", driver.DefaultMaxVisibility)},
		{"Annotation", config.Annotation != "", "queues of SQS have no room for one"},
		{"MaxDeliveries", config.MaxDeliveries > 0 && config.DeadLetterTo == "", "SQS needs another queue to move messages to: set DeadLetterTo"},
	} {
		if setting.asked {
			return configError(driver.ErrUnsupported, setting.field, setting.reason)
		}
	}
	return checkRanges(config)
}

// checkRanges returns ErrUnsupported for numbers that are good, and beyond SQS.
func checkRanges(config driver.Config) error {
	if config.MaxDeliveries > maxReceives {
		return configError(driver.ErrUnsupported, "MaxDeliveries", fmt.Sprintf("%d is outside 1…%d", config.MaxDeliveries, maxReceives))
	}
	if age := config.RetainReady.Age; age > 0 && (age < shortestKeeping || age > longestRetention || age%time.Second != 0) {
		return configError(driver.ErrUnsupported, "RetainReady.Age", fmt.Sprintf("%v is not a whole number of seconds in %v…%v", age, shortestKeeping, longestRetention))
	}
	return nil
}

func configError(code driver.Code, field, detail string) error {
	return &driver.Error{Code: code, Op: "configure", Field: field, Detail: detail}
}
