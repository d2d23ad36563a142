package drivertest

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/story"
)

//go:embed stories/*.txt
var storyFiles embed.FS

// storyNeeds are the needs that a story can have.
var storyNeeds = map[string]need{
	"fifo":         needFIFO,
	"exact-stats":  needExactStats,
	"dedup":        needDedup,
	"groups":       needGroups,
	"fair":         fairNeeds[0],
	"seals":        needSeals,
	"dead-letters": needDeadLetters,
	"peek":         needPeek,
	"move":         needMove,
	"late-ack":     needLateAck,
	"forget":       needForget,
	"pause":        needPause,
	"release":      needRelease,
	"edit":         needEdit,
	"clock":        needClock,
	"deliver-at":   needDeliverAt,
	"ttl":          needTTL,
	"priorities":   needPriorities,
	"unique-keys":  needUniqueKeys,
	"limits":       needGroupLimits,
	"drop-expired": needDropExpired,
	"admin":        needAdmin,
	"endings":      needObservable,
}

// storyCrashes are the needs of stories with a restart: each is a case for every crash.
var storyCrashes = map[string][]Crash{
	"restart":       {CrashClean, CrashKill, CrashPower},
	"clean-restart": {CrashClean},
}

// storyCases returns the cases of all stories. It reads them once.
var storyCases = sync.OnceValue(func() []testCase {
	cases, err := readStories(storyFiles)
	if err != nil {
		panic(err) // the files are embedded, so a test has read them
	}
	return cases
})

// Of this many stories one runs under the race detector where its test repeats what others do: a
// story has one goroutine.
const racedStories = 8

func readStories(files fs.FS) (cases []testCase, err error) {
	names, err := fs.Glob(files, "stories/*.txt")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		stories, err := story.Parse(path.Base(name), string(text))
		if err != nil {
			return nil, err
		}
		for _, s := range stories {
			c, crashes, err := caseOf(s)
			if err != nil {
				return nil, err
			}
			c.repeats = len(cases)%racedStories != 0
			if crashes == nil {
				cases = append(cases, c)
			}
			for _, how := range crashes {
				cases = append(cases, c.after(how, s))
			}
		}
	}
	return cases, nil
}

// after returns the case of a story with restarts for one crash.
func (c testCase) after(how Crash, s story.Story) testCase {
	c.title = fmt.Sprintf("after %v: %s", how, c.title)
	c.needs = append([]need{needCrash(how)}, c.needs...)
	c.run = func(e *env, q driver.Queue) { c.runStory(e, q, s, how) }
	return c
}

// caseOf returns the case of a story, and the crashes that it is about. It parses all commands, so
// that a mistake is found on every backend.
func caseOf(s story.Story) (c testCase, crashes []Crash, err error) {
	c = testCase{id: s.Rule, title: s.Title}
	if s.Rule == "" {
		return c, nil, fmt.Errorf("%s:%d: want a header \"== RULE title\"", s.File, s.Line)
	}
	for _, name := range s.Needs {
		if storyCrashes[name] != nil {
			crashes = storyCrashes[name]
			continue
		}
		need, ok := storyNeeds[name]
		if !ok {
			return c, nil, fmt.Errorf("%s:%d: unknown need %q", s.File, s.Line, name)
		}
		c.needs = append(c.needs, need)
		c.setsClock = c.setsClock || name == "clock"
	}
	anyDurations := durations{}
	for _, name := range durationNames {
		anyDurations[name] = 0
	}
	for _, block := range s.Blocks {
		for _, cmd := range block.Commands {
			_, plain := takeConditions(cmd)
			if _, err := parseOperation(plain, anyDurations); err != nil {
				return c, nil, fmt.Errorf("%s:%d: %w", s.File, cmd.Line, err)
			}
			c.real = c.real || controlVerbs[cmd.Verb] != nil || forwards(cmd)
		}
	}
	if len(s.Blocks) == 0 {
		return c, nil, fmt.Errorf("%s:%d: the story has no commands", s.File, s.Line)
	}
	if first := s.Blocks[0].Commands[0]; first.Verb == "queue" && first.Queue == "" {
		s.Blocks[0].Commands = s.Blocks[0].Commands[1:]
		c.forwards = forwards(first)
		c.config = func(e *env) driver.Config {
			return e.parse(first, nil).(createOperation).config
		}
	}
	c.run = func(e *env, q driver.Queue) { c.runStory(e, q, s, CrashClean) }
	return c, crashes, nil
}

// forwards reports whether a command configures a queue whose dead letters go to another.
func forwards(c story.Command) bool {
	return slices.ContainsFunc(c.Parts[0].Options, func(o story.Option) bool { return o.Key == "dead-letter-to" })
}

// durationNames are the durations that stories can name.
var durationNames = []string{"tick", "hold", "long-window", "dead-retry", "max-delay", "max-visibility"}

// durations returns the durations of an environment. The last two need a queue.
func (e *env) durations(q driver.Queue) durations {
	names := durations{"tick": e.unit, "hold": e.hold, "long-window": e.longWindow(), "dead-retry": driver.DeadRetry}
	if q != nil {
		names["max-delay"], names["max-visibility"] = q.Traits().MaxDelay, q.Traits().MaxVisibility
	}
	return names
}

// parse reads a command that was read before, now with the durations of the environment.
func (e *env) parse(c story.Command, q driver.Queue) operation {
	e.t.Helper()
	if strings.Contains(c.String(), "tick") {
		e.tick()
	}
	op, err := parseOperation(c, e.durations(q))
	if err != nil {
		e.failf("%v: %v", c, err)
	}
	return op
}

// conditions are the options that every command can have.
type conditions struct {
	virtual bool   // only=virtual: not run on the real clock
	before  string // before=DURATION: see storyState.repeatIfSlow
}

func takeConditions(c story.Command) (conditions, story.Command) {
	var found conditions
	c.Parts = slices.Clone(c.Parts)
	for i := range c.Parts {
		c.Parts[i].Options = slices.DeleteFunc(slices.Clone(c.Parts[i].Options), func(o story.Option) bool {
			switch {
			case o == story.Option{Key: "only", Value: "virtual"}:
				found.virtual = true
			case o.Key == "before":
				found.before = o.Value
			default:
				return false
			}
			return true
		})
	}
	return found, c
}

// runStory runs the commands of a story and compares their output.
func (c *testCase) runStory(e *env, q driver.Queue, s story.Story, how Crash) {
	e.t.Helper()
	p := newStoryExecutor(e, q)
	p.story.how, p.story.forwards = how, c.forwards
	rule := e.rule
	for _, block := range s.Blocks {
		p.story.want = nil
		for _, line := range block.Want {
			p.story.want = append(p.story.want, story.Expand(line))
		}
		for _, cmd := range block.Commands {
			e.rule = fmt.Sprintf("%s: %s:%d: %v", rule, s.File, cmd.Line, cmd)
			p.runCommand(cmd)
			if p.story.over {
				return
			}
		}
		if len(p.story.want) > 0 {
			e.failf("the commands of this block have not printed\n%s", strings.Join(p.story.want, "\n"))
		}
	}
}

func (p *executor) runCommand(c story.Command) {
	e := p.story.env
	e.t.Helper()
	conditions, c := takeConditions(c)
	if conditions.virtual && !e.backend.Virtual {
		return
	}
	op := e.parse(c, p.queue)
	if c.Verb != "woken" {
		p.story.acted = time.Now()
	}
	r := p.run(e.ctx(), op)
	got := slices.Collect(strings.Lines(r.String()))
	want := p.story.want[:min(len(got), len(p.story.want))]
	p.story.want = p.story.want[len(want):]
	if r.inexact || slices.EqualFunc(got, want, sameLine) {
		return
	}
	if conditions.before != "" {
		p.story.repeatIfSlow(conditions.before)
	}
	e.failf("\ngot:\n%swant:\n%s", strings.Join(got, ""), strings.Join(append(want, p.story.want...), "\n"))
}

// sameLine compares a line of output. A retry hint without a time stands for any.
func sameLine(got, want string) bool {
	got = strings.TrimSuffix(got, "\n")
	return got == want || want == someHint && strings.HasPrefix(got, exactHint)
}

// A storyState is what the executor of a story remembers.
type storyState struct {
	env      *env
	how      Crash     // of the case
	forwards bool      // see testCase
	mark     time.Time // that times are counted from
	acted    time.Time // when the latest command began, except woken
	over     bool      // the backend does not support the rest
	want     []string  // the output that is not compared yet
	queues   map[string]driver.Queue
	waiting  []<-chan outcome // receives, oldest first
	endings  *endings
	ids      map[string]string            // of messages by name
	sent     map[string]outgoing          // by id
	first    map[string]driver.Message    // the first delivery, by id
	taken    map[string][]driver.Delivery // by name
}

func newStoryExecutor(e *env, q driver.Queue) *executor {
	p := newExecutor(queueName, q, time.Now())
	p.verbose = false
	p.advance = e.sleep
	p.restart = func(how Crash) (queue, other driver.Queue, err error) {
		clear(p.story.queues)
		return e.restart(how), nil, nil
	}
	p.story = &storyState{
		env: e, mark: time.Now(), queues: make(map[string]driver.Queue), ids: make(map[string]string),
		sent: make(map[string]outgoing), first: make(map[string]driver.Message), taken: make(map[string][]driver.Delivery),
	}
	return p
}

// repeatIfSlow repeats the case if a slow machine, not the backend, has let a time since the
// mark pass.
func (s *storyState) repeatIfSlow(limit string) {
	d, err := s.env.durations(nil).parse(limit)
	if err != nil {
		s.env.failf("%v", err)
	}
	if !s.env.backend.Virtual && time.Since(s.mark) >= d-s.env.slack {
		s.env.tooSlow("%v were over before the command", d)
	}
}

// create configures another queue.
func (s *storyState) create(name string, config driver.Config) {
	s.queues[name] = s.env.configure(name, config)
}

// handle returns a queue by its name in commands. In a story the name of the queue under test
// stands for a second handle of it.
func (p *executor) handle(name string) driver.Queue {
	if p.story == nil {
		return p.other
	}
	if p.story.queues[name] == nil {
		p.story.queues[name] = p.story.env.open(name)
	}
	return p.story.queues[name]
}

// actual returns the name that the backend has for a queue of the program.
func (p *executor) actual(name string) string {
	switch {
	case name == thisQueue:
		return p.name
	case name == otherQueue && p.story == nil:
		return otherName(p.name)
	}
	return name
}

// delivery returns a delivery by its name: a is the latest delivery of a, and a#2 the second that
// the story has seen.
func (s *storyState) delivery(name string) (d driver.Delivery, ok bool) {
	if all := s.taken[name]; len(all) > 0 {
		return all[len(all)-1], true
	}
	if name == "zero" {
		return driver.Delivery{}, true
	}
	message, number, ok := cutNumber(name)
	if !ok || number < 1 || number > len(s.taken[message]) {
		return driver.Delivery{}, false
	}
	return s.taken[message][number-1], true
}

// sorted orders texts as the expected output has them, unless the queue promises an order.
func (s *storyState) sorted(q driver.Queue, texts []string) []string {
	if q.Traits().Ordering != driver.OrderingFIFO {
		slices.SortStableFunc(texts, func(a, b string) int { return s.position(a) - s.position(b) })
	}
	return texts
}

// position returns where the expected output has a text.
func (s *storyState) position(text string) int {
	if len(s.want) == 0 {
		return 0
	}
	return strings.Index(" "+s.want[0]+" ", " "+text+" ")
}
