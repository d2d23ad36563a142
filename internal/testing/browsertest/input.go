package browsertest

import (
	"encoding/json"
	"fmt"
)

// Paste puts text into what has the focus.
func (b *Browser) Paste(text string) {
	b.t.Helper()
	b.must(b.call("Input.insertText", map[string]any{"text": text}, nil))
}

// Type types text, key by key, into what has the focus.
func (b *Browser) Type(text string) {
	b.t.Helper()
	for _, r := range text {
		if r == '\n' {
			b.Press("Enter")
			continue
		}
		b.key(map[string]any{"key": string(r), "text": string(r)})
	}
}

// keys are those that Press knows, with their codes.
var keys = map[string]int{"Tab": 9, "Enter": 13, "Escape": 27}

// Press presses a key that types nothing: Tab, Shift+Tab, Enter or Escape.
func (b *Browser) Press(name string) {
	b.t.Helper()
	params := map[string]any{}
	if name == "Shift+Tab" {
		name, params["modifiers"] = "Tab", 8
	}
	code, known := keys[name]
	if !known {
		b.t.Fatalf("press %q: unknown key", name)
	}
	params["key"], params["code"], params["windowsVirtualKeyCode"] = name, name, code
	if name == "Enter" {
		params["text"] = "\r"
	}
	b.key(params)
}

// key presses a key and lets it go.
func (b *Browser) key(params map[string]any) {
	b.t.Helper()
	params["type"] = "keyDown"
	b.must(b.call("Input.dispatchKeyEvent", params, nil))
	params["type"] = "keyUp"
	delete(params, "text")
	b.must(b.call("Input.dispatchKeyEvent", params, nil))
}

// find is the function of a page that returns the middle of the first visible element which a selector
// names and which has a text, or why a person could not click there.
const find = `((selector, text) => {
	const all = [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility() && (!text || e.textContent.trim() === text));
	if (!all.length) return { problem: "no such element" };
	all[0].scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
	const r = all[0].getBoundingClientRect(), x = r.left + r.width / 2, y = r.top + r.height / 2;
	const hit = document.elementFromPoint(x, y);
	return all[0].contains(hit) ? { x, y } : { problem: "covered by " + (hit ? hit.outerHTML.slice(0, 200) : "nothing") };
})`

// Click moves the mouse onto the first visible element that a selector names and that has this text, and
// clicks. An empty text means any.
func (b *Browser) Click(selector, text string) {
	b.t.Helper()
	arguments, err := json.Marshal([]string{selector, text})
	b.must(err)
	var at struct {
		X, Y    float64
		Problem string
	}
	b.Eval(fmt.Sprintf("%s(...%s)", find, arguments), &at)
	if at.Problem != "" {
		var address string
		b.Eval("location.href + '\\n' + document.body.innerText", &address)
		b.t.Fatalf("click %s %q: %s; on %s", selector, text, at.Problem, address)
	}
	for _, event := range []string{"mousePressed", "mouseReleased"} {
		b.must(b.call("Input.dispatchMouseEvent", map[string]any{"type": event, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil))
	}
}
