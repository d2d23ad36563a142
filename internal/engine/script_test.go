package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/golden"
	"github.com/mailboxmq/mailbox/internal/testing/story"
)

// TestScripts runs testdata/*.txt, which package story reads. Beyond the commands of the
// conformance suite there is look, which shows every message and the next deadline. After a
// change of behaviour, run with -update and review the diff.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden.Match(t, file, []byte(run(t, file, string(content))))
		})
	}
}

// run returns the script with the output of its commands filled in.
func run(t *testing.T, file, content string) string {
	runner := &runner{t: t, latest: map[string]Delivery{}}
	stories, err := story.Parse(file, content)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stories {
		for i := range s.Blocks {
			s.Blocks[i].Want = nil
			for _, command := range s.Blocks[i].Commands {
				output := runner.run(command)
				s.Blocks[i].Want = append(s.Blocks[i].Want, strings.Split(strings.TrimSuffix(output, "\n"), "\n")...)
				if output == "" {
					s.Blocks[i].Want = s.Blocks[i].Want[:len(s.Blocks[i].Want)-1]
				}
				if err := runner.shard.Check(); err != nil {
					t.Fatalf("%s:%d: after %q: %v", file, command.Line, command, err)
				}
			}
		}
	}
	return story.Rewrite(content, stories)
}

// runner has the shard of a script. Messages are identified by their bodies.
type runner struct {
	t      *testing.T
	shard  *Shard
	now    time.Duration
	latest map[string]Delivery
	older  map[string]Delivery
}

func (p *runner) moment() Moment { return Moment{At: Instant(p.now), Wall: int64(p.now)} }

func (p *runner) run(command story.Command) string {
	options := map[string]string{}
	for _, option := range command.Parts[0].Options {
		options[option.Key] = option.Value
	}
	names := command.Parts[0].Words
	switch command.Verb {
	case "queue":
		p.shard = New(p.config(options), 1)
		return ""
	case "configure":
		p.shard.Configure(p.moment(), p.config(options))
		return ""
	case "send":
		return p.send(names, options)
	case "receive":
		return p.receive(options)
	case "time":
		p.now += p.duration(names[0])
		p.shard.Advance(p.moment())
		return fmt.Sprintf("now %v\n", p.now)
	case "ack", "nack", "release", "put-back", "extend", "dead-letter":
		return p.settle(command.Verb, names, options)
	case "redrive", "discard":
		return p.revive(command.Verb, names)
	case "purge":
		return fmt.Sprintf("%d removed\n", p.shard.Purge(p.moment()))
	case "look":
		return p.look()
	}
	p.t.Fatalf("unknown command %q", command)
	return ""
}

func (p *runner) config(options map[string]string) (c driver.Config) {
	for key, value := range options {
		switch key {
		case "strict":
			c.StrictGroups = true
		case "max-deliveries":
			c.MaxDeliveries = p.number(value)
		case "max-messages":
			c.MaxMessages = p.number(value)
		case "max-in-flight":
			c.MaxInFlight = p.number(value)
		case "max-dead":
			c.MaxDead = p.number(value)
		case "max-hold":
			c.MaxHold = p.duration(value)
		case "retain-ready":
			c.RetainReady.Age = p.duration(value)
		case "retain-ready-count":
			c.RetainReady.Count = p.number(value)
		case "retain-dead":
			c.RetainDead.Age = p.duration(value)
		case "retain-dead-count":
			c.RetainDead.Count = p.number(value)
		default:
			p.t.Fatalf("unknown setting %q", key)
		}
	}
	return c
}

func (p *runner) send(names []string, options map[string]string) (out string) {
	for _, name := range names {
		if err := p.shard.Room(p.moment(), len(name)); err != nil {
			out += fmt.Sprintf("%s: %v\n", name, err)
			continue
		}
		p.shard.Send(p.moment(), Content{ID: name, Body: []byte(name), Extra: &Extra{Group: options["group"]}}, p.duration(options["delay"]))
	}
	return out
}

func (p *runner) receive(options map[string]string) (out string) {
	visibility := 30 * time.Second
	if text, ok := options["visibility"]; ok {
		visibility = p.duration(text)
	}
	most := 1
	if text, ok := options["max"]; ok {
		most = p.number(text)
	}
	got, blocked := p.shard.Receive(p.moment(), most, p.number(options["bytes"]), visibility, nil)
	for _, e := range got {
		if p.older == nil {
			p.older = map[string]Delivery{}
		}
		p.older[e.ID] = p.latest[e.ID]
		p.latest[e.ID] = Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID}
		out += fmt.Sprintf("%s delivery %d\n", e.ID, e.Deliveries)
	}
	switch {
	case blocked:
		out += "blocked by the in-flight ceiling\n"
	case len(got) == 0:
		out += "nothing\n"
	}
	return out
}

func (p *runner) settle(op string, names []string, options map[string]string) (out string) {
	for _, name := range names {
		delivery := p.latest[name]
		if options["receipt"] == "older" {
			delivery = p.older[name]
		}
		var err error
		switch op {
		case "ack":
			err = p.shard.Ack(p.moment(), delivery)
		case "nack", "release", "put-back":
			mode := map[string]driver.NackMode{"release": driver.NackRelease, "put-back": driver.NackPutBack}[op]
			err = p.shard.Nack(p.moment(), delivery, p.duration(options["delay"]), options["cause"], mode)
		case "extend":
			_, err = p.shard.Extend(p.moment(), delivery, p.duration(options["visibility"]))
		case "dead-letter":
			err = p.shard.DeadLetter(p.moment(), delivery, driver.Reason(options["reason"]), options["cause"], "")
		}
		if err != nil {
			out += fmt.Sprintf("%s: %v\n", name, err)
		}
	}
	return out
}

func (p *runner) revive(op string, names []string) (out string) {
	for _, name := range names {
		dead := p.shard.FindDead(name)
		switch {
		case dead == nil:
			out += name + ": not found\n"
		case op == "discard":
			p.shard.Discard(p.moment(), dead)
		default:
			if err := p.shard.Redrive(p.moment(), dead); err != nil {
				out += fmt.Sprintf("%s: %v\n", name, err)
			}
		}
	}
	return out
}

// look shows every message and the next deadline.
func (p *runner) look() (out string) {
	p.shard.Advance(p.moment())
	for _, state := range []struct {
		name  string
		state State
	}{{"ready", Ready}, {"delayed", Delayed}, {"in flight", InFlight}, {"dead", Dead}} {
		var shown []string
		for e := range p.shard.InState(state.state) {
			text := e.ID
			if e.State == Dead {
				text += "(" + string(e.Extra.Reason) + ")"
			}
			shown = append(shown, text)
		}
		if len(shown) > 0 {
			out += state.name + ": " + strings.Join(shown, " ") + "\n"
		}
	}
	if out == "" {
		out = "empty\n"
	}
	if next, ok := p.shard.NextDeadline(); ok {
		out += fmt.Sprintf("next deadline in %v\n", time.Duration(next)-p.now)
	}
	return out
}

func (p *runner) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(strings.TrimPrefix(text, "+"))
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

func (p *runner) number(text string) int {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}
