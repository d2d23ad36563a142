package cli

import (
	"slices"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// press handles a key.
func (v *topView) press(key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	if name == "ctrl+c" {
		return tea.Quit
	}
	if v.typing {
		v.typeFilter(name, key.Text)
		return nil
	}
	switch name {
	case "q":
		return tea.Quit
	case "space", " ":
		if v.still = !v.still; !v.still {
			return v.look()
		}
		return nil
	}
	if v.queue != "" {
		return v.pressOnPage(name)
	}
	return v.pressInList(name)
}

// typeFilter edits the filter: Enter keeps it, Esc removes it.
func (v *topView) typeFilter(key, text string) {
	switch key {
	case "enter":
		v.typing = false
	case "esc":
		v.typing, v.filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(v.filter)
		v.filter = v.filter[:len(v.filter)-size]
	default:
		v.filter += text
	}
	v.arrange()
}

func (v *topView) pressInList(key string) tea.Cmd {
	switch key {
	case "esc":
		if v.filter == "" {
			return tea.Quit
		}
		v.filter = ""
	case "/":
		v.typing = true
	case "s":
		v.order = (v.order + 1) % len(topOrders)
	case "enter", "right", "l":
		if len(v.shown) > 0 {
			v.open(v.selected)
			return v.look()
		}
	default:
		before := v.page()
		if at := moved(key, slices.Index(v.shown, v.selected), len(v.shown), max(1, v.height-topFrame)); at >= 0 {
			v.selected = v.shown[at]
		}
		if after := v.page(); len(after) > 0 && after[0] != before[0] {
			return v.look()
		}
		return nil
	}
	v.arrange()
	return nil
}

func (v *topView) pressOnPage(key string) tea.Cmd {
	switch key {
	case "esc", "left", "h", "backspace":
		if v.message != nil {
			v.message = nil
			return nil
		}
		v.open("")
		return v.look()
	case "tab", "shift+tab":
		step := 1
		if key == "shift+tab" {
			step = len(topStates) - 1
		}
		v.state = topStates[(slices.Index(topStates, v.state)+step)%len(topStates)]
		v.messages, v.workers, v.message, v.receivers, v.line = nil, nil, nil, false, 0
		return v.look()
	case "w":
		v.messages, v.workers, v.message, v.receivers, v.line = nil, nil, nil, !v.receivers, 0
		return v.look()
	case "enter", "right", "l":
		if v.message == nil && v.line < len(v.messages) {
			shown := v.messages[v.line]
			v.message = &shown
		}
	default:
		if at := moved(key, v.line, max(len(v.messages), len(v.workers)), max(1, v.height-topFrame)); at >= 0 && v.message == nil {
			v.line = at
		}
	}
	return nil
}

// moved returns the line after a key, or -1 if there is none.
func moved(key string, line, lines, page int) int {
	switch key {
	case "up", "k":
		line--
	case "down", "j":
		line++
	case "pgup":
		line -= page
	case "pgdown":
		line += page
	case "home", "g":
		line = 0
	case "end", "G":
		line = lines
	}
	return min(max(line, 0), lines-1)
}
