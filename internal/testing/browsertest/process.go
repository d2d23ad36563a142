package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A process is a running Chromium.
type process struct {
	in *os.File

	mu      sync.Mutex // guards the fields below
	next    int
	answers map[int]chan message
	failure error               // the process has ended
	pages   map[string]*Browser // by session
}

// message is one of the debugging protocol.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// startProcess starts Chromium, which ends with the test.
func startProcess(t testing.TB) *process {
	t.Helper()
	program := os.Getenv("MAILBOX_CHROMIUM")
	if program == "" {
		program = proctest.Find(t, "chromium")
	}
	fromUs, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{in: in, answers: make(map[int]chan message), pages: make(map[string]*Browser)}
	command := exec.Command(program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--hide-scrollbars", "--force-color-profile=srgb", "--user-data-dir="+t.TempDir(), "about:blank")
	command.ExtraFiles = []*os.File{fromUs, toUs}
	command.Env = append(os.Environ(), "LANG=en_US.UTF-8", "TZ=UTC")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = fromUs.Close()
	_ = toUs.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(out)
	}()
	t.Cleanup(func() {
		_, _ = p.begin("", "Browser.close", nil)
		ended := time.AfterFunc(10*time.Second, func() { _ = command.Process.Kill() })
		_ = command.Wait() // it may have been killed
		ended.Stop()
		_ = in.Close()
		<-read
		_ = out.Close()
	})
	return p
}

// open opens a page in a context of the browser; empty is the first.
func (p *process) open(t testing.TB, browserContext string) *Browser {
	t.Helper()
	b := &Browser{t: t, process: p, loaded: make(chan struct{})}
	target := map[string]any{"url": "about:blank"}
	if browserContext != "" {
		target["browserContextId"] = browserContext
	}
	var made struct {
		TargetID string `json:"targetId"`
	}
	b.must(p.call(t.Context(), "", "Target.createTarget", target, &made))
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.must(p.call(t.Context(), "", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached))
	b.session = attached.SessionID
	p.mu.Lock()
	p.pages[b.session] = b
	p.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.must(b.call(domain+".enable", nil, nil))
	}
	return b
}

// read reads what the browser says, until it ends.
func (p *process) read(out *os.File) {
	reader := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := reader.ReadBytes(0)
		if err != nil {
			p.end(errors.New("the browser has ended"))
			return
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			p.end(fmt.Errorf("the browser says %.200q: %w", text, err))
			return
		}
		p.receive(&m)
	}
}

func (p *process) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = err
	for id, answer := range p.answers {
		delete(p.answers, id)
		close(answer)
	}
}

func (p *process) receive(m *message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.ID != 0 {
		if answer := p.answers[m.ID]; answer != nil {
			delete(p.answers, m.ID)
			answer <- *m
		}
		return
	}
	if page := p.pages[m.Session]; page != nil {
		page.receiveLocked(m)
	}
}

// begin sends a command to a session, without waiting for its answer.
func (p *process) begin(session, method string, params any) (<-chan message, error) {
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	if params == nil {
		encoded = []byte("{}")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		return nil, p.failure
	}
	p.next++
	answer := make(chan message, 1)
	p.answers[p.next] = answer
	text, err := json.Marshal(message{ID: p.next, Session: session, Method: method, Params: encoded})
	if err == nil {
		_, err = p.in.Write(append(text, 0))
	}
	return answer, err
}

// call runs a command and reads its result.
func (p *process) call(ctx context.Context, session, method string, params, result any) error {
	answer, err := p.begin(session, method, params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser has ended", method)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}
