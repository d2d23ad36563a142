package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/story"
)

// durations are the named durations that a command may use, such as tick and hold.
type durations map[string]time.Duration

// parse reads a sum of durations: "10s", "2tick", "hold-1ms".
func (names durations) parse(text string) (sum time.Duration, err error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	for rest := strings.TrimPrefix(text, "+"); rest != ""; {
		sign := time.Duration(1)
		if rest[0] == '+' || rest[0] == '-' {
			if rest[0] == '-' {
				sign = -1
			}
			rest = rest[1:]
		}
		end := len(rest)
		if i := strings.IndexAny(rest, "+-"); i >= 0 {
			end = i
		}
		unit := strings.TrimLeft(rest, "0123456789.")
		number := rest[:len(rest)-len(unit)]
		for name, d := range names {
			if strings.HasPrefix(unit, name) {
				factor := 1.0
				if number != "" {
					if factor, err = strconv.ParseFloat(number, 64); err != nil {
						return 0, fmt.Errorf("duration %q: %w", text, err)
					}
				}
				sum += sign * time.Duration(factor*float64(d))
				end = len(number) + len(name)
				number = "done"
				break
			}
		}
		if number != "done" {
			d, err := time.ParseDuration(rest[:end])
			if err != nil {
				return 0, fmt.Errorf("duration %q: want a sum of durations, tick and hold", text)
			}
			sum += sign * d
		}
		rest = rest[end:]
	}
	return sum, nil
}

// arguments reads the words and options of one part of a command. The first error is kept in
// err, and so are options that no method has asked for.
type arguments struct {
	words   []string
	options []story.Option
	names   durations
	err     error
}

func (a *arguments) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// take removes an option and returns its value.
func (a *arguments) take(key string) (value string, ok bool) {
	for i, option := range a.options {
		if option.Key == key {
			a.options = slices.Delete(a.options, i, i+1)
			return option.Value, true
		}
	}
	return "", false
}

func (a *arguments) text(key string) string {
	value, _ := a.take(key)
	return value
}

func (a *arguments) number(key string) int {
	value, ok := a.take(key)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		a.fail(fmt.Errorf("%s=%s: want a number", key, value))
	}
	return n
}

func (a *arguments) yes(key string) bool {
	value, ok := a.take(key)
	if ok && value != "yes" {
		a.fail(fmt.Errorf("%s=%s: want yes", key, value))
	}
	return ok
}

// duration returns a duration, or otherwise if it is not given.
func (a *arguments) duration(key string, otherwise time.Duration) time.Duration {
	value, ok := a.take(key)
	if !ok {
		return otherwise
	}
	d, err := a.names.parse(value)
	if err != nil {
		a.fail(err)
	}
	return d
}

func (a *arguments) attributes() map[string]string {
	var attributes map[string]string
	a.options = slices.DeleteFunc(a.options, func(o story.Option) bool {
		key, ok := strings.CutPrefix(o.Key, attributePrefix)
		if ok && attributes == nil {
			attributes = make(map[string]string)
		}
		if ok {
			attributes[key] = o.Value
		}
		return ok
	})
	return attributes
}

// none checks that the part has no words.
func (a *arguments) none() {
	if len(a.words) > 0 {
		a.fail(fmt.Errorf("unexpected %q", a.words[0]))
	}
}

func (a *arguments) config() (c driver.Config) {
	a.none()
	c.Shards = a.number("shards")
	c.StrictGroups = a.yes("strict")
	c.FairGroups = a.yes("fair")
	c.GroupLimits = a.text("limits")
	c.MaxDeliveries = a.number("max-deliveries")
	c.MaxMessages = a.number("max-messages")
	c.MaxBytes = a.number("max-bytes")
	c.MaxInFlight = a.number("max-in-flight")
	c.MaxDead = a.number("max-dead")
	c.DedupWindow = a.duration("dedup-window", 0)
	c.DedupMax = a.number("dedup-max")
	c.RetainReady = driver.Retention{Age: a.duration("retain-ready", 0), Count: a.number("retain-ready-count")}
	c.TTL = a.duration("ttl", 0)
	c.PriorityAging = a.duration("aging", 0)
	c.DropExpired = a.yes("drop-expired")
	c.RetainDead = driver.Retention{Age: a.duration("retain-dead", 0), Count: a.number("retain-dead-count")}
	c.MaxHold = a.duration("max-hold", 0)
	c.DeadLetterTo = a.text("dead-letter-to")
	return c
}

// verbs are the commands with one part. The commands that only stories use are in storyVerbs.
var verbs = map[string]func(a *arguments) operation{
	"receive":     parseReceive,
	"ack":         func(a *arguments) operation { return ackOperation{a.words} },
	"ack-late":    func(a *arguments) operation { return lateAckOperation{a.words} },
	"nack":        func(a *arguments) operation { return parseNack(a, driver.NackFailed) },
	"release":     func(a *arguments) operation { return parseNack(a, driver.NackRelease) },
	"put-back":    func(a *arguments) operation { return parseNack(a, driver.NackPutBack) },
	"extend":      func(a *arguments) operation { return parseExtend(a, false) },
	"extend-late": func(a *arguments) operation { return parseExtend(a, true) },
	"dead-letter": func(a *arguments) operation {
		return deadLetterOperation{a.words, driver.DeadLetterRequest{
			Reason: driver.Reason(a.text("reason")), Error: a.text("cause"), ErrorType: a.text("type"),
		}}
	},
	"redrive": func(a *arguments) operation {
		op := redriveOperation{limit: a.number("limit")}
		if !slices.Equal(a.words, []string{"all"}) {
			op.messages = a.words
		}
		return op
	},
	"move":       parseMove,
	"discard":    func(a *arguments) operation { return discardOperation{a.words} },
	"purge":      func(a *arguments) operation { a.none(); return purgeOperation{} },
	"purge-dead": func(a *arguments) operation { a.none(); return purgeDeadOperation{} },
	"dead":       parseDead,
	"throttle":   func(a *arguments) operation { return throttleOperation{a.words[0], a.duration("wait", 0)} },
	"pause":      func(a *arguments) operation { a.none(); return pauseOperation{} },
	"resume":     func(a *arguments) operation { a.none(); return resumeOperation{} },
	"schedules":  func(a *arguments) operation { a.none(); return schedulesOperation{} },
	"remove":     func(a *arguments) operation { return parseEdit(a, driver.Edit{Remove: true}) },
	"make-ready": func(a *arguments) operation { return parseEdit(a, driver.Edit{Ready: true}) },
	"reschedule": func(a *arguments) operation { return parseEdit(a, driver.Edit{}) },
	"prioritize": func(a *arguments) operation {
		return parseEdit(a, driver.Edit{Prioritize: true, Priority: a.number("priority")})
	},
	"peek":      parsePeek,
	"time":      parseAdvance,
	"configure": func(a *arguments) operation { return configureOperation{a.config()} },
	"queue":     func(a *arguments) operation { return createOperation{a.config()} },
	"restart":   parseRestart,
}

func parseDead(a *arguments) operation {
	a.none()
	died, ok := a.take("died")
	if ok && died != "mark" {
		a.fail(fmt.Errorf("died=%s: want mark", died))
	}
	return listDeadOperation{died: ok}
}

func parseRestart(a *arguments) operation {
	if len(a.words) == 0 {
		return restartOperation{crashOfCase}
	}
	how, ok := crashNames[strings.Join(a.words, " ")]
	if !ok {
		a.fail(fmt.Errorf("want one of %q", slices.Sorted(maps.Keys(crashNames))))
	}
	return restartOperation{how}
}

func parseReceive(a *arguments) operation {
	op := receiveOperation{at: a.duration("at", 0), notBefore: a.duration("not-before", 0), brief: a.yes("brief"), request: driver.ReceiveRequest{
		Max: 1, Visibility: a.duration("visibility", a.names["hold"]),
		MaxBytes: a.number("bytes"), Wait: a.duration("wait", 0),
	}}
	switch most, ok := a.take("max"); {
	case len(a.words) == 1 && !ok:
		most, op.collect = a.words[0], true
		fallthrough
	case ok:
		n, err := strconv.Atoi(most)
		if err != nil {
			a.fail(fmt.Errorf("%q is not a number of messages", most))
		}
		op.request.Max = n
	default:
		a.none()
	}
	return op
}

func parseNack(a *arguments, mode driver.NackMode) operation {
	return nackOperation{a.words, a.duration("delay", 0), a.text("cause"), mode}
}

func parseExtend(a *arguments, late bool) operation {
	return extendOperation{deliveries: a.words, visibility: a.duration("visibility", a.names["hold"]), late: late}
}

func parseMove(a *arguments) operation {
	if len(a.words) != 1 {
		a.fail(errors.New("move: want one queue"))
		return moveOperation{}
	}
	return moveOperation{to: a.words[0], limit: a.number("limit")}
}

func parseEdit(a *arguments, edit driver.Edit) operation {
	if len(a.words) != 1 {
		a.fail(errors.New("want one message"))
		return editOperation{}
	}
	return editOperation{message: a.words[0], edit: edit, ahead: a.duration("due", 0)}
}

func parsePeek(a *arguments) operation {
	op := peekOperation{query: driver.Query{
		Attributes: a.attributes(), OlderThan: a.duration("older", 0),
		Reason: driver.Reason(a.text("reason")), Limit: a.number("limit"),
	}}
	for state, ok := a.take("state"); ok; state, ok = a.take("state") {
		op.query.States = append(op.query.States, driver.State(state))
	}
	if len(a.words) > 1 {
		a.fail(errors.New("peek: want at most one message"))
	}
	op.message = strings.Join(a.words, "")
	return op
}

func parseAdvance(a *arguments) operation {
	if len(a.words) == 0 {
		a.fail(errors.New("time: want a duration"))
		return advanceOperation{}
	}
	by, err := a.names.parse(a.words[0])
	if err != nil {
		a.fail(err)
	}
	return advanceOperation{by: by, unseen: slices.Equal(a.words[1:], []string{"unseen"})}
}

// parseSend reads a batch. The options of a part are those of each of its messages.
func parseSend(c story.Command, names durations) (operation, error) {
	var op sendOperation
	for _, part := range c.Parts {
		a := arguments{words: part.Words, options: slices.Clone(part.Options), names: names}
		msg := driver.Outgoing{
			DedupKey: a.text("key"), UniqueKey: a.text("unique"), Replace: a.yes("replace"), Group: a.text("group"), ReplyTo: a.text("reply-to"), CorrelationID: a.text("correlation"),
			Delay: a.duration("delay", 0), TTL: a.duration("ttl", 0), Priority: a.number("priority"), Attributes: a.attributes(),
		}
		if seal, ok := a.take("seal"); ok {
			msg.Seal = []byte(seal)
		}
		ahead, whole := a.duration("due", 0), a.yes("whole")
		body, given := a.take("body")
		if err := a.done(); err != nil {
			return nil, err
		}
		for _, name := range part.Words {
			named := outgoing{name: name, Outgoing: msg, ahead: ahead, whole: whole}
			named.Attributes = maps.Clone(msg.Attributes)
			named.Body = []byte(name)
			if given {
				named.Body = []byte(body)
			}
			op.messages = append(op.messages, named)
		}
	}
	return op, nil
}

// done returns the first error, or one about the first option that no verb knows.
func (a *arguments) done() error {
	if a.err == nil && len(a.options) > 0 {
		return fmt.Errorf("unknown option %q", a.options[0].Key)
	}
	return a.err
}

// parseOperation reads the operation of a command.
func parseOperation(c story.Command, names durations) (op operation, err error) {
	if c.Queue != "" {
		queue := c.Queue
		c.Queue = ""
		if op, err = parseOperation(c, names); err != nil {
			return nil, err
		}
		return inOperation{queue, op}, nil
	}
	if c.Verb == "send" {
		return parseSend(c, names)
	}
	if c.Verb == "fire" {
		return parseFire(c, names)
	}
	parse := verbs[c.Verb]
	if parse == nil {
		parse = storyVerbs[c.Verb]
	}
	if parse == nil {
		parse = controlVerbs[c.Verb]
	}
	if parse == nil {
		return nil, fmt.Errorf("unknown verb %q", c.Verb)
	}
	if len(c.Parts) > 1 {
		return nil, fmt.Errorf("%s: unexpected comma", c.Verb)
	}
	a := &arguments{words: append([]string{}, c.Parts[0].Words...), options: slices.Clone(c.Parts[0].Options), names: names}
	op = parse(a)
	if err := a.done(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Verb, err)
	}
	return op, nil
}

// parseProgram reads what program.String prints.
func parseProgram(text string) (p program, err error) {
	stories, err := story.Parse("program", text)
	if err != nil {
		return p, err
	}
	if len(stories) != 1 {
		return p, fmt.Errorf("got %d stories, want 1", len(stories))
	}
	for _, block := range stories[0].Blocks {
		for _, c := range block.Commands {
			if c.Verb == "verbose" {
				p.Untimed = slices.Equal(c.Parts[0].Words, []string{"untimed"})
				continue
			}
			op, err := parseOperation(c, nil)
			if err != nil {
				return p, err
			}
			switch op := op.(type) {
			case createOperation:
				p.Config = op.config
				continue
			case inOperation:
				if create, ok := op.op.(createOperation); ok && op.queue == otherQueue {
					p.Other = &create.config
					continue
				}
			}
			p.Operations = append(p.Operations, op)
		}
	}
	return p, nil
}
