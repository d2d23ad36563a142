package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/queuecopy"
	_ "github.com/mailboxmq/mailbox/redisbox" // for its URLs; the other backends are imported for more
)

// copiedView is a finished copy in JSON.
type copiedView struct {
	Moved    int `json:"moved"`
	Early    int `json:"moved_before_due"`
	Ready    int `json:"left_ready"`
	Delayed  int `json:"left_delayed"`
	InFlight int `json:"left_in_flight"`
	Dead     int `json:"left_dead"`
}

func (s *shell) copyCommand() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use: "copy FROM TO", Short: "Move the messages of a queue to another backend or daemon",
		Long: "Move the messages of a queue to another one, in order: ready ones, and delayed ones with their due times. Both are URLs\n" +
			"as in docs/urls.md, or names of queues of the daemon. Messages are sent first and removed then, so that nothing is lost\n" +
			"if the command breaks off; run it again. Messages in flight and dead ones stay.",
		Example: "mailbox copy 'disk:///var/lib/shop?queue=orders' redis://127.0.0.1:6379/orders\n" +
			"mailbox copy orders 'mailboxs://new.internal:9411/orders?token_file=new.token' --follow",
		Args: wants(2, 2),
		RunE: s.run(func(ctx context.Context, args []string) (err error) {
			if args[0] == args[1] {
				return usageError("FROM and TO are the same queue")
			}
			places := &places{shell: s}
			defer func() { err = errors.Join(err, places.close()) }()
			from, err := places.open(ctx, "FROM", args[0])
			if err != nil {
				return err
			}
			to, err := places.open(ctx, "TO", args[1])
			if err != nil {
				return err
			}
			return s.copyQueue(ctx, from, to, follow)
		}),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "continue with messages that come later, until interrupted")
	return c
}

func (s *shell) copyQueue(ctx context.Context, from, to driver.Queue, follow bool) error {
	var total int64
	if stats, err := from.Stats(ctx); err != nil {
		return err
	} else if !follow {
		total = int64(stats.Ready + stats.Delayed)
	}
	shown := s.progress("moved", total)
	result, err := queuecopy.Run(ctx, from, to, queuecopy.Options{Follow: follow, Moved: func(n int) { shown.add(int64(n)) }})
	shown.end()
	left := result.Left
	if s.global.json {
		return errors.Join(s.object(copiedView{result.Moved, result.Early, left.Ready, left.Delayed, left.InFlight, left.Dead}), err)
	}
	text := fmt.Sprintf("moved %s", plural(result.Moved, "message"))
	if result.Early > 0 {
		text += fmt.Sprintf(", %d of them before they were due", result.Early)
	}
	var rest []string
	for _, state := range []struct {
		n    int
		name string
	}{{left.Ready, "ready"}, {left.Delayed, "delayed"}, {left.InFlight, "in flight"}, {left.Dead, "dead"}} {
		if state.n > 0 {
			rest = append(rest, fmt.Sprintf("%d %s", state.n, state.name))
		}
	}
	if len(rest) > 0 {
		text += "; left: " + strings.Join(rest, ", ")
	}
	_, written := fmt.Fprintln(s.Stdout, text)
	return errors.Join(err, written)
}

// places are the backends of a copy. Queues of one backend share it.
type places struct {
	shell    *shell
	backends map[string]driver.Backend
}

func (p *places) open(ctx context.Context, argument, where string) (driver.Queue, error) {
	key, queue, open, err := p.find(argument, where)
	if err != nil {
		return nil, err
	}
	backend := p.backends[key]
	if backend == nil {
		if backend, err = open(ctx); err != nil {
			return nil, err
		}
		if p.backends == nil {
			p.backends = make(map[string]driver.Backend)
		}
		p.backends[key] = backend
	}
	return backend.OpenQueue(ctx, queue)
}

// find reads an argument: a URL, or the name of a queue of the daemon.
func (p *places) find(argument, where string) (key, queue string, open func(context.Context) (driver.Backend, error), err error) {
	scheme, _, isURL := strings.Cut(where, "://")
	if !isURL {
		if err := driver.CheckName(where); err != nil {
			return "", "", nil, usageError("%s: invalid name %.60q: it %s", argument, where, explainedDetail(err))
		}
		open = func(context.Context) (driver.Backend, error) {
			c, err := p.shell.connect()
			if err != nil {
				return nil, err
			}
			defer c.close()
			if c.oap == "" {
				return nil, usageError("%s: a queue of the daemon needs its address of OAP/1; give --oap-addr, or a URL like mailbox://HOST:9411/%s", argument, where)
			}
			return c.remotebox(), nil
		}
		return "", where, open, nil
	}
	address, err := url.Parse(where)
	if err != nil { // it repeats the URL, which may have a password
		return "", "", nil, usageError("%s: the URL of %.20s cannot be read; want a URL as in docs/urls.md", argument, scheme)
	}
	target, err := driver.ReadURL(address)
	if errors.Is(err, driver.ErrUnresolved) {
		return "", "", nil, usageError("%s: unknown scheme %.20q; want %s, or the name of a queue", argument, scheme, strings.Join(driver.URLSchemes(), ", "))
	}
	return scheme + "\x00" + target.Key, target.Queue, target.Open, err
}

func (p *places) close() (err error) {
	for _, backend := range p.backends {
		err = errors.Join(err, backend.Close())
	}
	return err
}
