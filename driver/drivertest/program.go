package drivertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/story"
)

// A program is a sequence of operations on one queue. Random programs name messages and
// deliveries by number, in the order in which they first appeared (m1, m2, … and d1, d2, …), so
// that one program runs on any backend and the results can be compared.
type program struct {
	// Config is the queue's; it is the zero Config where the opener has no
	// Admin.
	Config driver.Config
	// Other is the configuration of a second queue, which messages move to and from; nil if
	// there is none.
	Other *driver.Config
	// Untimed programs have results that do not depend on how fast they run: leases and delays
	// end at once or not for an hour, and no time passes on purpose. Backends that cannot run
	// in virtual time run these.
	Untimed    bool
	Operations []operation
}

// An operation is one step of a program or of a story. Its String is a command of the story
// language.
type operation interface {
	fmt.Stringer
	run(ctx context.Context, p *executor) result
}

// String prints the program as a story, without its output.
func (p program) String() string {
	var b strings.Builder
	b.WriteString(p.head())
	for _, op := range p.Operations {
		fmt.Fprintln(&b, op)
	}
	return b.String()
}

// head prints the commands before the first operation.
func (p program) head() string {
	text := createOperation{p.Config}.String() + "\n"
	if p.Other != nil {
		text += inOperation{otherQueue, createOperation{*p.Other}}.String() + "\n"
	}
	return text + verboseOperation{p.Untimed}.String() + "\n"
}

// thisQueue and otherQueue are the names of the queues of a program in its commands.
const (
	thisQueue  = "this"
	otherQueue = "other"
)

// The operations. Deliveries are references such as d3, forged-d3, d?, a or a#2, and messages
// such as m3, m? or a.
type (
	// inOperation runs an operation on another queue.
	inOperation struct {
		queue string
		op    operation
	}
	sendOperation    struct{ messages []outgoing }
	receiveOperation struct {
		request driver.ReceiveRequest
		// collect: receive until Max messages have come, as those that are ready must.
		collect bool
		// at, unless 0, is when they must come, counted from the mark, and notBefore when
		// they may come at the earliest.
		at, notBefore time.Duration
		// brief: only the names are printed, where backends count and keep errors differently.
		brief bool
	}
	ackOperation     struct{ deliveries []string }
	lateAckOperation struct{ deliveries []string }
	nackOperation    struct {
		deliveries []string
		delay      time.Duration
		cause      string
		mode       driver.NackMode
	}
	extendOperation struct {
		deliveries []string
		visibility time.Duration
		late       bool
	}
	deadLetterOperation struct {
		deliveries []string
		request    driver.DeadLetterRequest
	}
	redriveOperation struct {
		messages []string // nil means all
		limit    int
	}
	moveOperation struct {
		to    string
		limit int
	}
	discardOperation   struct{ messages []string }
	purgeOperation     struct{}
	purgeDeadOperation struct{}
	throttleOperation  struct {
		group string
		wait  time.Duration
	}
	pauseOperation  struct{}
	resumeOperation struct{}
	editOperation   struct {
		message string
		edit    driver.Edit
		// ahead, unless 0, is how far the new due time is ahead.
		ahead time.Duration
	}
	// listDeadOperation lists the dead letters. If died is set, they have died at the mark.
	listDeadOperation struct{ died bool }
	peekOperation     struct {
		message string // "" means any
		query   driver.Query
	}
	advanceOperation struct {
		by time.Duration
		// unseen: the stats are not read afterwards, so that the next operation is the first to
		// see what has become due.
		unseen bool
	}
	configureOperation struct{ config driver.Config }
	createOperation    struct{ config driver.Config }
	restartOperation   struct{ how Crash }
)

// An outgoing is a message to send, and its name in the program.
type outgoing struct {
	name string
	driver.Outgoing
	// ahead, unless 0, is how far the due time is ahead when the message is sent.
	ahead time.Duration
	// whole: the message has everything that the queue can keep.
	whole bool
}

// at returns the message as it is sent at this time.
func (m *outgoing) at(now time.Time) driver.Outgoing {
	msg := m.Outgoing
	if m.ahead != 0 {
		msg.DeliverAt = now.Add(m.ahead)
	}
	return msg
}

// A messageNumber names the n-th message that was sent; unknownMessage is an id that no message
// has.
type messageNumber int

const unknownMessage messageNumber = -1

func (n messageNumber) String() string {
	if n == unknownMessage {
		return "m?"
	}
	return fmt.Sprintf("m%d", int(n))
}

// A deliveryNumber names the receipt of the n-th delivery, and -n the same receipt with another
// nonce. 0 is a receipt that was never given out.
type deliveryNumber int

func (n deliveryNumber) String() string {
	switch {
	case n < 0:
		return fmt.Sprintf("forged-d%d", -int(n))
	case n == 0:
		return "d?"
	}
	return fmt.Sprintf("d%d", int(n))
}

// references returns the names of numbers.
func references[E fmt.Stringer](numbers []E) []string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = n.String()
	}
	return texts
}

// command prints one command. Options without a value are left out.
func command(verb string, words []string, options ...story.Option) string {
	return story.Command{Verb: verb, Parts: []story.Part{{Words: words, Options: given(options)}}}.String()
}

func given(options []story.Option) []story.Option {
	return slices.DeleteFunc(options, func(o story.Option) bool { return o.Value == "" })
}

func textOption(key, value string) story.Option { return story.Option{Key: key, Value: value} }

func numberOption(key string, n int) story.Option {
	if n == 0 {
		return story.Option{}
	}
	return story.Option{Key: key, Value: strconv.Itoa(n)}
}

func timeOption(key string, d time.Duration) story.Option {
	if d == 0 {
		return story.Option{}
	}
	return story.Option{Key: key, Value: d.String()}
}

func boolOption(key string, b bool) story.Option {
	if !b {
		return story.Option{}
	}
	return story.Option{Key: key, Value: "yes"}
}

// attributePrefix begins the options that are attributes: attribute:colour=red.
const attributePrefix = "attribute:"

func attributeOptions(attributes map[string]string) (options []story.Option) {
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		options = append(options, story.Option{Key: attributePrefix + key, Value: attributes[key]})
	}
	return options
}

func (o inOperation) String() string { return "in " + story.Quote(o.queue) + " " + o.op.String() }

func (o sendOperation) String() string {
	c := story.Command{Verb: "send"}
	for _, msg := range o.messages {
		options := given([]story.Option{
			textOption("key", msg.DedupKey), textOption("unique", msg.UniqueKey), boolOption("replace", msg.Replace), textOption("group", msg.Group), textOption("reply-to", msg.ReplyTo),
			textOption("correlation", msg.CorrelationID), textOption("seal", string(msg.Seal)), timeOption("delay", msg.Delay),
			timeOption("due", msg.ahead), timeOption("ttl", msg.TTL), numberOption("priority", msg.Priority), boolOption("whole", msg.whole),
		})
		if msg.name != string(msg.Body) {
			options = append(options, story.Option{Key: "body", Value: string(msg.Body)})
		}
		c.Parts = append(c.Parts, story.Part{Words: []string{msg.name}, Options: append(options, attributeOptions(msg.Attributes)...)})
	}
	return c.String()
}

func (o receiveOperation) String() string {
	options := []story.Option{
		{Key: "max", Value: strconv.Itoa(o.request.Max)},
		{Key: "visibility", Value: o.request.Visibility.String()},
		numberOption("bytes", o.request.MaxBytes), timeOption("wait", o.request.Wait), timeOption("at", o.at),
		timeOption("not-before", o.notBefore), boolOption("brief", o.brief),
	}
	if o.collect {
		return command("receive", []string{strconv.Itoa(o.request.Max)}, options[1:]...)
	}
	return command("receive", nil, options...)
}

func (o ackOperation) String() string     { return command("ack", o.deliveries) }
func (o lateAckOperation) String() string { return command("ack-late", o.deliveries) }

func (o nackOperation) String() string {
	return command(nackVerbs[o.mode], o.deliveries, timeOption("delay", o.delay), textOption("cause", o.cause))
}

var nackVerbs = map[driver.NackMode]string{
	driver.NackFailed: "nack", driver.NackRelease: "release", driver.NackPutBack: "put-back",
}

func (o extendOperation) String() string {
	verb := "extend"
	if o.late {
		verb = "extend-late"
	}
	return command(verb, o.deliveries, story.Option{Key: "visibility", Value: o.visibility.String()})
}

func (o deadLetterOperation) String() string {
	return command("dead-letter", o.deliveries, textOption("reason", string(o.request.Reason)),
		textOption("cause", o.request.Error), textOption("type", o.request.ErrorType))
}

func (o redriveOperation) String() string {
	messages := o.messages
	if messages == nil {
		messages = []string{"all"}
	}
	return command("redrive", messages, numberOption("limit", o.limit))
}

func (o moveOperation) String() string {
	return command("move", []string{o.to}, numberOption("limit", o.limit))
}

func (o discardOperation) String() string { return command("discard", o.messages) }
func (purgeOperation) String() string     { return "purge" }
func (purgeDeadOperation) String() string { return "purge-dead" }
func (o listDeadOperation) String() string {
	return command("dead", nil, map[bool]story.Option{true: textOption("died", "mark")}[o.died])
}
func (o throttleOperation) String() string {
	return command("throttle", []string{o.group}, story.Option{Key: "wait", Value: o.wait.String()})
}
func (pauseOperation) String() string  { return "pause" }
func (resumeOperation) String() string { return "resume" }

func (o editOperation) String() string {
	verb := "reschedule"
	switch {
	case o.edit.Remove:
		verb = "remove"
	case o.edit.Ready:
		verb = "make-ready"
	case o.edit.Prioritize:
		return command("prioritize", []string{o.message}, story.Option{Key: "priority", Value: strconv.Itoa(o.edit.Priority)})
	}
	return command(verb, []string{o.message}, timeOption("due", o.ahead))
}

func (o peekOperation) String() string {
	var words []string
	if o.message != "" {
		words = []string{o.message}
	}
	var options []story.Option
	for _, state := range o.query.States {
		options = append(options, textOption("state", string(state)))
	}
	options = given(append(options, timeOption("older", o.query.OlderThan),
		textOption("reason", string(o.query.Reason)), numberOption("limit", o.query.Limit)))
	options = append(options, attributeOptions(o.query.Attributes)...)
	return story.Command{Verb: "peek", Parts: []story.Part{{Words: words, Options: options}}}.String()
}

func (o advanceOperation) String() string {
	words := []string{"+" + o.by.String()}
	if o.unseen {
		words = append(words, "unseen")
	}
	return command("time", words)
}

func (o configureOperation) String() string {
	return command("configure", nil, configOptions(o.config)...)
}

func (o createOperation) String() string { return command("queue", nil, configOptions(o.config)...) }

func (o restartOperation) String() string {
	if o.how == crashOfCase {
		return "restart"
	}
	for name, how := range crashNames {
		if how == o.how {
			return "restart " + name
		}
	}
	return fmt.Sprintf("restart %d", o.how)
}

// crashOfCase is the crash that the case of a story is about.
const crashOfCase Crash = -1

var crashNames = map[string]Crash{"clean": CrashClean, "kill": CrashKill, "power": CrashPower}

// configOptions returns the settings that are set.
func configOptions(c driver.Config) []story.Option {
	return given([]story.Option{
		numberOption("shards", c.Shards),
		boolOption("strict", c.StrictGroups),
		boolOption("fair", c.FairGroups),
		textOption("limits", c.GroupLimits),
		numberOption("max-deliveries", c.MaxDeliveries),
		numberOption("max-messages", c.MaxMessages),
		numberOption("max-bytes", c.MaxBytes),
		numberOption("max-in-flight", c.MaxInFlight),
		numberOption("max-dead", c.MaxDead),
		timeOption("dedup-window", c.DedupWindow),
		numberOption("dedup-max", c.DedupMax),
		timeOption("retain-ready", c.RetainReady.Age),
		numberOption("retain-ready-count", c.RetainReady.Count),
		timeOption("ttl", c.TTL),
		timeOption("aging", c.PriorityAging),
		boolOption("drop-expired", c.DropExpired),
		timeOption("retain-dead", c.RetainDead.Age),
		numberOption("retain-dead-count", c.RetainDead.Count),
		timeOption("max-hold", c.MaxHold),
		textOption("dead-letter-to", c.DeadLetterTo),
	})
}

// describeAttributes prints attributes in a fixed order.
func describeAttributes(attributes map[string]string) string {
	var pairs []string
	for key, value := range attributes {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return "{" + strings.Join(pairs, " ") + "}"
}
