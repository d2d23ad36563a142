package sqsapi

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// settings are the attributes and tags of a queue, and its move tasks. They are stored in
// the annotation of the queue's configuration; names are short because every daemon
// reads them often.
type settings struct {
	Visibility int `json:"visibility"`
	Delay      int `json:"delay,omitempty"`
	Wait       int `json:"wait,omitempty"`
	MaxSize    int `json:"max_size"`
	Retention  int `json:"retention"`

	FIFO         bool   `json:"fifo,omitempty"`
	ContentDedup bool   `json:"content_dedup,omitempty"`
	DedupScope   string `json:"dedup_scope,omitempty"`
	Throughput   string `json:"throughput,omitempty"`

	// The policies have the text of the client, which was checked when it was set.
	Policy       string `json:"policy,omitempty"`
	Redrive      string `json:"redrive,omitempty"`
	RedriveAllow string `json:"redrive_allow,omitempty"`

	// These are stored and returned; nothing is encrypted.
	KMSKey   string `json:"kms_key,omitempty"`
	KMSReuse int    `json:"kms_reuse,omitempty"`
	SSE      bool   `json:"sse,omitempty"`

	Tags map[string]string `json:"tags,omitempty"`
	// Created and Modified are in Unix seconds; 0 for a queue that another surface
	// created.
	Created  int64 `json:"created,omitempty"`
	Modified int64 `json:"modified,omitempty"`

	// Tasks are the move tasks of which the queue is the source, oldest first.
	Tasks []moveTask `json:"tasks,omitempty"`
}

// The values of attributes that are words.
const (
	scopeQueue       = "queue"
	scopeGroup       = "messageGroup"
	limitPerQueue    = "perQueue"
	limitPerGroup    = "perMessageGroupId"
	fifoSuffix       = ".fifo"
	annotationKey    = "sqs"
	foreignNotesKey  = "text"
	defaultRetention = 345_600
	maxRetention     = 1_209_600
	defaultKMSReuse  = 300
)

// newSettings returns the settings of a queue without attributes.
func newSettings() settings {
	return settings{Visibility: 30, MaxSize: maxMessageBytes, Retention: defaultRetention}
}

// readSettings returns the settings of a queue. A queue without our annotation was
// created by another surface: it has the defaults, and the values of its configuration.
func readSettings(name string, config *driver.Config) settings {
	var notes map[string]json.RawMessage
	s := newSettings()
	if json.Unmarshal([]byte(config.Annotation), &notes) == nil && notes[annotationKey] != nil {
		if json.Unmarshal(notes[annotationKey], &s) == nil {
			return s
		}
		s = newSettings()
	}
	s.FIFO = config.StrictGroups && strings.HasSuffix(name, fifoSuffix)
	if age := config.RetainReady.Age; age > 0 {
		s.Retention = int(min(age, maxRetention*time.Second) / time.Second)
	}
	return s
}

// annotate stores the settings in a configuration, besides other content of its
// annotation.
func (s *settings) annotate(config *driver.Config) error {
	notes := make(map[string]json.RawMessage)
	if config.Annotation != "" && json.Unmarshal([]byte(config.Annotation), &notes) != nil {
		text, err := json.Marshal(config.Annotation)
		if err != nil {
			return err
		}
		notes = map[string]json.RawMessage{foreignNotesKey: text}
	}
	own, err := json.Marshal(s)
	if err != nil {
		return err
	}
	notes[annotationKey] = own
	text, err := json.Marshal(notes)
	if err != nil {
		return err
	}
	config.Annotation = string(text)
	return nil
}

const (
	// maxInFlight is the limit of AWS.
	maxInFlight = 120_000
	// anyHold turns off the engine's bound; this package enforces twelve hours.
	anyHold     = driver.Off
	dedupWindow = 5 * time.Minute
)

// newConfig returns the configuration of a queue with these settings. Fields that it
// leaves unset get the bounds of the daemon.
func (s *settings) newConfig() driver.Config {
	config := driver.Config{StrictGroups: s.FIFO, FairGroups: !s.FIFO, MaxInFlight: maxInFlight, DedupWindow: dedupWindow, MaxHold: anyHold}
	s.retain(&config)
	s.setDeadLetters(&config)
	return config
}

// configure applies changed settings to a configuration.
func (s *settings) configure(config *driver.Config, before *settings) {
	if s.Retention != before.Retention {
		s.retain(config)
	}
	if s.Redrive != before.Redrive {
		s.setDeadLetters(config)
	}
}

func (s *settings) retain(config *driver.Config) {
	config.RetainReady.Age = time.Duration(s.Retention) * time.Second
	config.DropExpired = true
}

// setDeadLetters sets the delivery limit and the dead-letter queue. As on AWS there is no
// limit without a redrive policy.
func (s *settings) setDeadLetters(config *driver.Config) {
	config.MaxDeliveries, config.DeadLetterTo = driver.Off, ""
	if policy, ok := s.redrivePolicy(); ok {
		config.MaxDeliveries, config.DeadLetterTo = policy.count, policy.queue
	}
}
