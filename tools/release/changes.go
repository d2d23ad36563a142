package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

var heading = regexp.MustCompile(`(?m)^## \[(.+?)\](?: - (\d{4}-\d{2}-\d{2}))?$`)

// changes returns the date and the notes of a version in a change log.
func changes(file, version string) (time.Time, string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, "", err
	}
	found := heading.FindAllSubmatchIndex(text, -1)
	for i, at := range found {
		if string(text[at[2]:at[3]]) != version || at[4] < 0 {
			continue
		}
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		date, err := time.Parse(time.DateOnly, string(text[at[4]:at[5]]))
		return date, strings.TrimSpace(string(text[at[1]:end])) + "\n", err
	}
	return time.Time{}, "", fmt.Errorf("%s has no heading ## [%s] - YYYY-MM-DD", file, version)
}
