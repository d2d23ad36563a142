package redistest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// throughProxy returns a server, a proxy in front of it, and a client of the
// proxy that repeats no command.
func throughProxy(t *testing.T) (*redistest.Server, *redistest.Proxy, rueidis.Client) {
	t.Helper()
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	option := server.ClientOption()
	option.InitAddress = []string{proxy.Addr()}
	option.DisableRetry = true
	return server, proxy, connect(t, option)
}

// once returns an action for the first INCR, and passes all other requests.
func once(action redistest.Action) func([]string) redistest.Action {
	done := make(chan struct{}, 1)
	done <- struct{}{}
	return func(args []string) redistest.Action {
		if args[0] == "INCR" {
			select {
			case <-done:
				return action
			default:
			}
		}
		return redistest.Pass
	}
}

func TestProxyCutsAtChosenRequest(t *testing.T) {
	for name, test := range map[string]struct {
		action redistest.Action
		fails  bool
		done   any // what the server has afterwards
	}{
		"pass":                        {redistest.Pass, false, "1"},
		"before":                      {redistest.CutBefore, true, nil},
		"in the middle":               {redistest.CutInside, true, nil},
		"after":                       {redistest.CutAfter, true, "1"},
		"after, big key":              {redistest.CutAfter, true, "1"},
		"at a byte of the request":    {redistest.CutRequestAt(5), true, nil},
		"after all of the request":    {redistest.CutRequestAt(1 << 20), true, "1"},
		"at a byte of the answer":     {redistest.CutAnswerAt(2), true, "1"},
		"after all of a short answer": {redistest.CutAnswerAt(1 << 20), false, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			server, proxy, client := throughProxy(t)
			key := redistest.Prefix(t)
			if name == "after, big key" {
				key += string(make([]byte, 1<<20))
			}
			proxy.OnRequest(once(test.action))
			err := client.Do(t.Context(), client.B().Incr().Key(key).Build()).Error()
			if (err != nil) != test.fails {
				t.Errorf("the client got %v", err)
			}
			if value, err := server.Do(t.Context(), "GET", key); err != nil || value != test.done {
				t.Errorf("the server has %v, %v", value, err)
			}
			// A client that got all of its answer may notice the cut only now.
			for deadline := time.Now().Add(time.Minute); ; {
				_, err := get(t.Context(), client, key)
				if err == nil || rueidis.IsRedisNil(err) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("afterwards the client got %v", err)
				}
			}
		})
	}
}

func TestProxyBlackholeLosesNothingAndAnswersNothing(t *testing.T) {
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	key := redistest.Prefix(t)
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	proxy.Blackhole(true)
	if _, err := fmt.Fprintf(conn, "*2\r\n$4\r\nINCR\r\n$%d\r\n%s\r\n", len(key), key); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(":1\r\n"))
	if n, err := conn.Read(answer); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the black hole answers %q, %v", answer[:n], err)
	}
	if value, err := server.Do(t.Context(), "GET", key); err != nil || value != nil {
		t.Errorf("the black hole let something through: %v, %v", value, err)
	}
	proxy.Blackhole(false)
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != ":1\r\n" {
		t.Errorf("after the black hole: %q, %v", answer, err)
	}
}

func TestProxyDelaysRequests(t *testing.T) {
	_, proxy, client := throughProxy(t)
	const delay = 30 * time.Millisecond
	proxy.Delay(delay)
	start := time.Now()
	if err := set(t.Context(), client, redistest.Prefix(t), "v"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < delay {
		t.Errorf("it took %v", took)
	}
}

func TestProxyCutAndRefuse(t *testing.T) {
	_, proxy, client := throughProxy(t)
	key := redistest.Prefix(t)
	if err := set(t.Context(), client, key, "v"); err != nil {
		t.Fatal(err)
	}
	if proxy.Connections() == 0 {
		t.Error("no client is connected")
	}
	proxy.Refuse(true)
	proxy.Cut()
	if err := set(t.Context(), client, key, "v"); err == nil {
		t.Error("a connection was let through")
	}
	proxy.Refuse(false)
	for ctx := soon(t); ; { // it has several connections, and has to notice that each is dead
		err := set(ctx, client, key, "v")
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("afterwards: %v", err)
		}
	}
}

func TestProxyReplacesServerAnswers(t *testing.T) {
	_, proxy, client := throughProxy(t)
	key := redistest.Prefix(t)
	proxy.Rewrite(func(args []string) []string {
		if args[0] == "INCR" {
			return redistest.ErrorRequest("LOADING not yet")
		}
		return args
	})
	err := client.Do(t.Context(), client.B().Incr().Key(key).Build()).Error()
	if redisErr, ok := rueidis.IsRedisErr(err); !ok || redisErr.Error() != "LOADING not yet" {
		t.Errorf("got %v", err)
	}
	proxy.Rewrite(nil)
	if n, err := client.Do(t.Context(), client.B().Incr().Key(key).Build()).AsInt64(); err != nil || n != 1 {
		t.Errorf("got %d, %v, want the first increment", n, err)
	}
}

func TestMonitorShowsScripts(t *testing.T) {
	server := redistest.Standalone(t)
	var lines []string
	stop, err := server.Monitor(t.Context(), func(line string) { lines = append(lines, line) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do(t.Context(), "EVAL", "return redis.call('GET', KEYS[1])", "1", "inside"); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	heard := strings.Join(lines, "\n")
	if !strings.Contains(heard, `lua] "GET" "inside"`) || !strings.Contains(heard, `"EVAL"`) {
		t.Errorf("heard %s", heard)
	}
}
