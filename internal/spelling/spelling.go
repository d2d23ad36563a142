// Package spelling finds what a mistyped word was meant to be.
package spelling

import "strings"

// Nearest returns the candidate that word is most likely a typing error of, and ""
// if none is near enough. Of candidates that are equally near it is the first.
func Nearest(word string, candidates []string) string {
	found, least := "", max(1, len(word)/3)+1
	for _, candidate := range candidates {
		d := distance(word, candidate)
		if word != "" && strings.HasPrefix(candidate, word) {
			d = min(d, 1)
		}
		if d < least && d < len(candidate) {
			found, least = candidate, d
		}
	}
	return found
}

// distance is how many letters have to be added, removed, replaced or swapped with
// their neighbour to make b of a.
func distance(a, b string) int {
	before, above := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, above[j+1]+1, above[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
