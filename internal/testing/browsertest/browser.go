// Package browsertest drives a real browser in tests: Chromium without a window, over the
// pipes of its debugging protocol. It knows the few commands that tests of pages need.
package browsertest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen: much longer than it takes, for
// machines that are busy with other tests.
const patience = 3 * time.Minute

// A Browser is a page of a running Chromium.
type Browser struct {
	t       testing.TB
	process *process
	session string // of the debugging protocol, for this page

	// The fields below are guarded by process.mu.

	// problems are errors of the page: exceptions, lines of the console, violations of the
	// content security policy.
	problems []string
	// requested are the addresses that the page asked for, with their fragments.
	requested []string
	loaded    chan struct{} // closed when the next page is complete
}

// Start starts a browser with one page, which ends with the test: Chromium, or what MAILBOX_CHROMIUM
// names. make setup installs Chromium; without it tests skip, or fail under make.
func Start(t testing.TB) *Browser {
	t.Helper()
	return startProcess(t).open(t, "")
}

// Private opens a page that shares the process with b, and neither cookies nor anything else that pages
// keep. It is closed with the test t.
func (b *Browser) Private(t testing.TB) *Browser {
	t.Helper()
	var made struct {
		BrowserContextID string `json:"browserContextId"`
	}
	if err := b.process.call(t.Context(), "", "Target.createBrowserContext", nil, &made); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // without an answer: the context of the test has ended
		_, _ = b.process.begin("", "Target.disposeBrowserContext", map[string]any{"browserContextId": made.BrowserContextID})
	})
	return b.process.open(t, made.BrowserContextID)
}

func (b *Browser) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// receiveLocked reads an event of the page.
func (b *Browser) receiveLocked(m *message) {
	switch m.Method {
	case "Page.loadEventFired":
		close(b.loaded)
		b.loaded = make(chan struct{})
	case "Network.requestWillBeSent":
		var sent struct {
			Request struct{ URL, URLFragment string }
		}
		if err := json.Unmarshal(m.Params, &sent); err == nil {
			b.requested = append(b.requested, sent.Request.URL+sent.Request.URLFragment)
		}
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
	b.process.mu.Lock()
	defer b.process.mu.Unlock()
	problems := b.problems
	b.problems = nil
	return problems
}

// Addresses returns what the page has asked for, and its history.
func (b *Browser) Addresses() []string {
	b.t.Helper()
	var history struct{ Entries []struct{ URL string } }
	b.must(b.call("Page.getNavigationHistory", nil, &history))
	b.process.mu.Lock()
	defer b.process.mu.Unlock()
	addresses := slices.Clone(b.requested)
	for _, entry := range history.Entries {
		addresses = append(addresses, entry.URL)
	}
	return addresses
}

// call runs a command on the page and reads its result.
func (b *Browser) call(method string, params, result any) error {
	return b.process.call(b.t.Context(), b.session, method, params, result)
}

// Resize sets the size of the page in pixels, and its colour scheme: light or dark.
func (b *Browser) Resize(width, height int, scheme string) {
	b.t.Helper()
	b.must(b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil))
	b.must(b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil))
}

// SetZone sets the time zone of the page, such as Asia/Tokyo.
func (b *Browser) SetZone(zone string) {
	b.t.Helper()
	b.must(b.call("Emulation.setTimezoneOverride", map[string]any{"timezoneId": zone}, nil))
}

// Hide hides the page as people do who minimise the window, or shows it again.
func (b *Browser) Hide(hidden bool) {
	b.t.Helper()
	var window struct {
		WindowID int `json:"windowId"`
	}
	b.must(b.call("Browser.getWindowForTarget", nil, &window))
	state := map[bool]string{true: "minimized", false: "normal"}[hidden]
	b.must(b.process.call(b.t.Context(), "", "Browser.setWindowBounds", map[string]any{"windowId": window.WindowID, "bounds": map[string]any{"windowState": state}}, nil))
	b.WaitFor(fmt.Sprintf("document.hidden === %t", hidden))
}

// FrameText returns the text of the first frame in the page, whatever its origin is.
func (b *Browser) FrameText() string {
	b.t.Helper()
	var tree struct {
		FrameTree struct {
			ChildFrames []struct{ Frame struct{ ID string } }
		}
	}
	b.must(b.call("Page.getFrameTree", nil, &tree))
	if len(tree.FrameTree.ChildFrames) == 0 {
		b.t.Fatal("the page has no frame")
	}
	var world struct {
		ExecutionContextID int `json:"executionContextId"`
	}
	b.must(b.call("Page.createIsolatedWorld", map[string]any{"frameId": tree.FrameTree.ChildFrames[0].Frame.ID}, &world))
	var text struct{ Result struct{ Value string } }
	b.must(b.call("Runtime.evaluate", map[string]any{"expression": "document.documentElement.outerHTML", "contextId": world.ExecutionContextID, "returnByValue": true}, &text))
	return text.Result.Value
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
	b.process.mu.Lock()
	loaded := b.loaded
	b.process.mu.Unlock()
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

// Screenshot returns a picture of the page as PNG, from where it is scrolled to down to its end, but no further
// than maxHeight pixels.
func (b *Browser) Screenshot(width, maxHeight int) []byte {
	b.t.Helper()
	var top, height int
	b.Eval("Math.floor(scrollY)", &top)
	b.Eval("Math.ceil(document.body.getBoundingClientRect().bottom)", &height) // in the window
	var shot struct{ Data string }
	b.must(b.call("Page.captureScreenshot", map[string]any{
		"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": top, "width": width, "height": min(height, maxHeight), "scale": 1},
	}, &shot))
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	b.must(err)
	return picture
}
