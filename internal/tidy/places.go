package tidy

import (
	"fmt"
	"regexp"
	"strings"
)

// machinePath finds absolute paths that exist on one machine only. The words are written
// apart so that this file passes its own rule.
var machinePath = regexp.MustCompile(`(?:^|[^A-Za-z0-9_.~-])/(?:` + strings.Join([]string{"work", "root", "home", "Users"}, "|") + `)/`)

// Portable checks that no file names a place on one machine.
func Portable(t *Tree) []string {
	var wrong []string
	for _, name := range t.paths("") {
		number := 0
		for line := range strings.Lines(t.Texts[name]) {
			number++
			if found := machinePath.FindString(line); found != "" {
				wrong = append(wrong, fmt.Sprintf("%s:%d names a path of one machine (%s…): use a relative one", name, number, strings.TrimSpace(found)))
			}
		}
	}
	return wrong
}
