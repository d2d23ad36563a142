package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
)

func (s *shell) topCommand() *cobra.Command {
	var tenant string
	var interval time.Duration
	c := &cobra.Command{
		Use: "top [QUEUE...]", Short: "Watch queues, their rates and messages on the whole screen",
		Long: "Watch queues on the whole screen, all if none is named: counts, rates and the age of the oldest ready message.\n" +
			"Enter opens a queue with its messages, and a message; Esc goes back. It changes nothing and leases nothing.",
		Example: "mailbox top\nmailbox top orders invoices --interval 5s",
		Args:    wants(0, -1), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			if !isTerminal(s.Stdout) || !isTerminal(s.Stdin) || s.global.json {
				return usageError("top needs a terminal; mailbox stats --watch prints tables, or lines of JSON")
			}
			if err := checkInterval(interval); err != nil {
				return err
			}
			a.tenant = tenant
			return s.top(ctx, a, args, interval)
		}),
	}
	c.Flags().StringVar(&tenant, "tenant", "", "watch the queues of this tenant, with the operator's token")
	c.Flags().DurationVar(&interval, "interval", time.Second, "how often it looks")
	return c
}

// top shows the view until the user or ctx ends it.
func (s *shell) top(ctx context.Context, a *api, queues []string, interval time.Duration) error {
	program := tea.NewProgram(newTopView(ctx, a, queues, interval),
		tea.WithContext(ctx), tea.WithInput(s.Stdin), tea.WithOutput(s.Stdout), tea.WithEnvironment(s.Environ))
	final, err := program.Run()
	if view, ok := final.(*topView); ok && view.fatal != nil {
		return view.fatal
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, tea.ErrInterrupted) {
		return err
	}
	return nil
}

// A topView is the live view of queues: a list, one queue with its messages, or one message.
type topView struct {
	ctx      context.Context //nolint:containedctx // the view lives as long as the command
	api      *api
	named    bool // the queues were named, and are not listed
	interval time.Duration

	width, height int
	light         bool

	rows       map[string]*topRow
	shown      []string // the list: names of queues that fit the filter, in order
	turn       int      // where in shown the queues begin that are counted next
	order      int      // in topOrders
	filter     string
	typing     bool
	still      bool // the user wants to read in peace
	listed     time.Time
	measured   time.Time
	selected   string // in the list
	queue      string // whose page is shown; empty: the list
	state      driver.State
	messages   []messageView
	line       int // the selected message
	denied     error
	message    *messageView // which is shown
	receivers  bool         // the page shows workers instead of messages
	workers    []workerView
	looking    bool
	again      bool // it looks again at once, because the screen has changed
	generation int  // of ticks: older ones are ignored

	failed error // of the latest sample
	fatal  error // ends the view
}

// A topRow is a queue in the list.
type topRow struct {
	statsBody
	counted bool
	history historyBody
}

var _ tea.Model = (*topView)(nil)

// topOrders are the orders of the list, which the key s goes through.
var topOrders = []struct {
	name string
	by   func(*topRow) int64 // most first; nil: by name
}{
	{"name", nil},
	{"ready", func(r *topRow) int64 { return int64(r.Ready) }},
	{"in flight", func(r *topRow) int64 { return int64(r.InFlight) }},
	{"dead", func(r *topRow) int64 { return int64(r.Dead) }},
	{"oldest", func(r *topRow) int64 { return r.history.last().OldestReadyMS }},
}

// topStates are the states of the page of a queue.
var topStates = []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead}

func newTopView(ctx context.Context, a *api, queues []string, interval time.Duration) *topView {
	v := &topView{ctx: ctx, api: a, interval: interval, rows: make(map[string]*topRow), width: 80, height: 24, state: driver.StateReady}
	for _, name := range queues {
		v.named, v.rows[name] = true, &topRow{}
	}
	v.arrange()
	return v
}

// Init takes the first sample.
func (v *topView) Init() tea.Cmd { return tea.Batch(tea.RequestBackgroundColor, v.look()) }

// A topTick is the time for the next sample.
type topTick struct{ generation int }

// look takes a sample, or another one when the present one has come.
func (v *topView) look() tea.Cmd {
	if v.looking {
		v.again = true
		return nil
	}
	v.looking, v.again = true, false
	v.generation++
	now := time.Now()
	r := topRequest{list: !v.named && now.Sub(v.listed) >= topSlow, measure: now.Sub(v.measured) >= topSlow, until: v.interval}
	if v.queue != "" {
		r.visible, r.page, r.state, r.messages = []string{v.queue}, true, v.state, max(v.height, 1)
		r.receivers = v.receivers
	} else {
		r.visible = slices.Clone(v.page())
		for i := range min(topBatch, len(v.shown)) {
			r.others = append(r.others, v.shown[(v.turn+i)%len(v.shown)])
		}
	}
	ctx, a := v.ctx, v.api
	return func() tea.Msg { return a.sample(ctx, &r) }
}

// Update handles an event.
func (v *topView) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		v.width, v.height = m.Width, m.Height
		return v, v.look()
	case tea.BackgroundColorMsg:
		v.light = !m.IsDark()
	case tea.KeyPressMsg:
		return v, v.press(m)
	case topSample:
		return v, v.take(&m)
	case topTick:
		if m.generation == v.generation && !v.still {
			return v, v.look()
		}
	}
	return v, nil
}

// take notes a sample, and says when to look next.
func (v *topView) take(s *topSample) tea.Cmd {
	v.looking = false
	v.failed = s.err
	if s.err != nil {
		if f := explain(s.err); f.exit != exitUnreachable && f.exit != exitFull {
			v.fatal = s.err
			return tea.Quit
		}
	} else {
		v.note(s)
	}
	if v.again || len(s.names) > 0 && len(s.counts) == 0 { // the first names: count their messages
		return v.look()
	}
	generation := v.generation
	return tea.Tick(v.interval, func(time.Time) tea.Msg { return topTick{generation} })
}

// note takes the figures of a sample over.
func (v *topView) note(s *topSample) {
	if s.list {
		v.listed = s.at
		known := v.rows
		v.rows = make(map[string]*topRow, len(s.names))
		for _, name := range s.names {
			v.rows[name] = cmp.Or(known[name], &topRow{})
		}
	}
	if s.measure && len(s.visible) > 0 {
		v.measured = s.at
	}
	for name, counts := range s.counts {
		row := cmp.Or(v.rows[name], &topRow{})
		row.statsBody, row.counted = counts, true
		if history, ok := s.histories[name]; ok {
			row.history = history
		}
		v.rows[name] = row
	}
	for _, name := range s.gone {
		delete(v.rows, name)
	}
	if len(v.shown) > 0 {
		v.turn = (v.turn + max(0, len(s.counts)+len(s.gone)-len(s.visible))) % len(v.shown)
	}
	v.arrange()
	if s.page && v.queue == s.visible[0] && v.state == s.state && v.receivers == s.receivers {
		v.messages, v.workers, v.denied = s.peeked, s.workers, s.denied
		v.line = max(0, min(v.line, max(len(v.messages), len(v.workers))-1))
		if len(s.gone) > 0 {
			v.open("")
		}
	}
}

// arrange filters and orders the list. The selected queue stays selected.
func (v *topView) arrange() {
	v.shown = v.shown[:0]
	for name := range v.rows {
		if strings.Contains(name, v.filter) {
			v.shown = append(v.shown, name)
		}
	}
	by := topOrders[v.order].by
	slices.SortFunc(v.shown, func(a, b string) int {
		if by != nil {
			if c := cmp.Compare(by(v.rows[b]), by(v.rows[a])); c != 0 {
				return c
			}
		}
		return strings.Compare(a, b)
	})
	if !slices.Contains(v.shown, v.selected) && len(v.shown) > 0 {
		v.selected = v.shown[0]
	}
}

// page returns the part of the list that is on the screen: the one with the selected queue.
func (v *topView) page() []string {
	room := max(1, v.height-topFrame)
	first := max(0, slices.Index(v.shown, v.selected)) / room * room
	return v.shown[min(first, len(v.shown)):min(first+room, len(v.shown))]
}

// open shows the page of a queue, or the list.
func (v *topView) open(queue string) {
	v.queue, v.state, v.messages, v.message, v.denied, v.line = queue, driver.StateReady, nil, nil, nil, 0
	v.receivers, v.workers = false, nil
	v.measured = time.Time{} // its page shows more points
}
