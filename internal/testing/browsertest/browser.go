// Package browsertest drives a real browser in tests: Chromium without a window, over the
// pipes of its debugging protocol. It knows the few commands that tests of pages need.
package browsertest

import (
	"bufio"
	"context"
	"encoding/base64"
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

// patience is how long a test waits for what must happen: much longer than it takes, for
// machines that are busy with other tests.
const patience = 3 * time.Minute

// A Browser is a running Chromium with one page.
type Browser struct {
	t       testing.TB
	in      *os.File
	session string

	mu      sync.Mutex // guards the fields below
	next    int
	answers map[int]chan message
	failure error // the browser has ended
	// problems are errors of the pages: exceptions, lines of the console, violations of the
	// content security policy.
	problems []string
	loads    int // pages that were loaded
	loaded   chan struct{}
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

// Start starts a browser, which ends with the test: Chromium, or what MAILBOX_CHROMIUM names. make
// setup installs Chromium; without it tests skip, or fail under make.
func Start(t testing.TB) *Browser {
	t.Helper()
	program := os.Getenv("MAILBOX_CHROMIUM")
	if program == "" {
		program = proctest.Find(t, "chromium")
	}
	b := &Browser{t: t, answers: make(map[int]chan message), loaded: make(chan struct{})}
	fromUs, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b.in = in
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
		b.read(out)
	}()
	t.Cleanup(func() {
		_ = b.send("Browser.close", nil)
		ended := time.AfterFunc(10*time.Second, func() { _ = command.Process.Kill() })
		_ = command.Wait() // it may have been killed
		ended.Stop()
		_ = in.Close()
		<-read
		_ = out.Close()
	})
	b.attach()
	return b
}

// attach opens a page.
func (b *Browser) attach() {
	b.t.Helper()
	var made struct {
		TargetID string `json:"targetId"`
	}
	b.must(b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &made))
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.must(b.call("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached))
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.must(b.call(domain+".enable", nil, nil))
	}
}

func (b *Browser) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// read reads what the browser says, until it ends.
func (b *Browser) read(out *os.File) {
	reader := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := reader.ReadBytes(0)
		if err != nil {
			b.end(errors.New("the browser has ended"))
			return
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			b.end(fmt.Errorf("the browser says %.200q: %w", text, err))
			return
		}
		b.receive(&m)
	}
}

func (b *Browser) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failure = err
	for id, answer := range b.answers {
		delete(b.answers, id)
		close(answer)
	}
}

func (b *Browser) receive(m *message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.ID != 0 {
		if answer := b.answers[m.ID]; answer != nil {
			delete(b.answers, m.ID)
			answer <- *m
		}
		return
	}
	switch m.Method {
	case "Page.loadEventFired":
		b.loads++
		close(b.loaded)
		b.loaded = make(chan struct{})
	case "Runtime.exceptionThrown":
		b.problems = append(b.problems, "exception: "+string(m.Params))
	case "Log.entryAdded":
		var entry struct {
			Entry struct{ Level, Text, URL string }
		}
		if err := json.Unmarshal(m.Params, &entry); err == nil && entry.Entry.Level == "error" {
			b.problems = append(b.problems, entry.Entry.Text+" "+entry.Entry.URL)
		}
	case "Runtime.consoleAPICalled":
		var call struct{ Type string }
		if err := json.Unmarshal(m.Params, &call); err == nil && call.Type == "error" {
			b.problems = append(b.problems, "console: "+string(m.Params))
		}
	}
}

// Problems returns the errors of the pages since it was last called.
func (b *Browser) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	problems := b.problems
	b.problems = nil
	return problems
}

// send sends a command without waiting for its answer.
func (b *Browser) send(method string, params any) error {
	_, err := b.begin(method, params)
	return err
}

func (b *Browser) begin(method string, params any) (<-chan message, error) {
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	if params == nil {
		encoded = []byte("{}")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure != nil {
		return nil, b.failure
	}
	b.next++
	answer := make(chan message, 1)
	b.answers[b.next] = answer
	text, err := json.Marshal(message{ID: b.next, Session: b.session, Method: method, Params: encoded})
	if err == nil {
		_, err = b.in.Write(append(text, 0))
	}
	return answer, err
}

// call runs a command and reads its result.
func (b *Browser) call(method string, params, result any) error {
	answer, err := b.begin(method, params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
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

// Resize sets the size of the page in pixels, and its colour scheme: light or dark.
func (b *Browser) Resize(width, height int, scheme string) {
	b.t.Helper()
	b.must(b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil))
	b.must(b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil))
}

// Open loads a page, and returns when it is complete.
func (b *Browser) Open(address string) {
	b.t.Helper()
	b.leave(func() {
		var result struct{ ErrorText string }
		b.must(b.call("Page.navigate", map[string]any{"url": address}, &result))
		if result.ErrorText != "" {
			b.t.Fatalf("open %s: %s", address, result.ErrorText)
		}
	})
}

// leave does what loads another page, and returns when that is complete.
func (b *Browser) leave(do func()) {
	b.t.Helper()
	b.mu.Lock()
	loaded := b.loaded
	b.mu.Unlock()
	do()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	select {
	case <-loaded:
	case <-ctx.Done():
		b.t.Fatal("the page was not loaded")
	}
}

// Eval runs an expression in the page and reads its value. A promise is awaited.
func (b *Browser) Eval(expression string, value any) {
	b.t.Helper()
	b.must(b.eval(expression, value))
}

func (b *Browser) eval(expression string, value any) error {
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &result)
	switch {
	case err != nil:
		return err
	case result.ExceptionDetails != nil:
		return fmt.Errorf("evaluate %.200s: %s %s", expression, result.ExceptionDetails.Text, result.ExceptionDetails.Exception.Description)
	case value != nil && len(result.Result.Value) > 0:
		return json.Unmarshal(result.Result.Value, value)
	}
	return nil
}

// poll is how often WaitFor asks.
const poll = 50 * time.Millisecond

// WaitFor waits until an expression is true in the page, also while pages are loaded.
func (b *Browser) WaitFor(expression string) {
	b.t.Helper()
	for began := time.Now(); ; {
		var met bool
		err := b.eval("Boolean("+expression+")", &met)
		if met {
			return
		}
		if time.Since(began) > patience {
			var text string
			_ = b.eval("location.href + ' ' + document.body.innerText", &text)
			b.t.Fatalf("not so: %s (%v) on %s", expression, err, text)
		}
		<-time.After(poll)
	}
}

// Paste puts text into what has the focus.
func (b *Browser) Paste(text string) {
	b.t.Helper()
	b.must(b.call("Input.insertText", map[string]any{"text": text}, nil))
}

// Type types text, key by key, into what has the focus.
func (b *Browser) Type(text string) {
	b.t.Helper()
	for _, r := range text {
		key := string(r)
		params := map[string]any{"type": "keyDown", "key": key, "text": key}
		if r == '\n' {
			params = map[string]any{"type": "keyDown", "key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}
		}
		b.must(b.call("Input.dispatchKeyEvent", params, nil))
		params["type"] = "keyUp"
		delete(params, "text")
		b.must(b.call("Input.dispatchKeyEvent", params, nil))
	}
}

// Screenshot returns a picture of the page as PNG, down to its end but no further than
// maxHeight pixels.
func (b *Browser) Screenshot(width, maxHeight int) []byte {
	b.t.Helper()
	var height int
	b.Eval("Math.ceil(document.body.getBoundingClientRect().height)", &height)
	var shot struct{ Data string }
	b.must(b.call("Page.captureScreenshot", map[string]any{
		"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": width, "height": min(height, maxHeight), "scale": 1},
	}, &shot))
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	b.must(err)
	return picture
}
