// Package suggest finds the name that was meant by a mistyped one.
package suggest

// Closest returns the name in known that is nearest to word, or "" if none is near:
// up to a third of the letters of word, and at least one, may be wrong, missing, extra
// or swapped with their neighbour. Of names that are equally near it returns the first.
func Closest(word string, known []string) string {
	best, found := max(1, len(word)/3)+1, ""
	for _, name := range known {
		if d := distance(word, name); d < best {
			best, found = d, name
		}
	}
	return found
}

// distance counts the edits between a and b: letters that are inserted, deleted,
// replaced, or swapped with their neighbour.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
