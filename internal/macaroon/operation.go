package macaroon

import (
	"slices"
	"strings"
)

// Operations are the words for operations. The position of a word is its number, which
// is never 0.
var Operations = [...]string{"", "send", "recv", "ack", "nack", "extend", "stats", "peek", "purge", "dlq", "admin", "backup", "audit", "ask", "answer", "throttle"}

// ParseOperation returns the number of a word.
func ParseOperation(word string) (number uint8, ok bool) {
	i := slices.Index(Operations[1:], word) + 1
	return uint8(i), i > 0
}

// An OperationSet has a bit for each operation.
type OperationSet uint32

// AllOperations are the operations that "*" allows, send to admin: those that existed
// when the first tokens were minted. Later ones must be named, so that no existing token
// gains an operation.
const AllOperations OperationSet = 1<<11 - 1<<1

// Has reports whether the set has the operation with this number.
func (s OperationSet) Has(number uint8) bool {
	return number > 0 && int(number) < len(Operations) && s&(1<<number) != 0
}

// List returns the numbers of the operations.
func (s OperationSet) List() (numbers []uint8) {
	for o := range uint8(len(Operations)) {
		if s.Has(o) {
			numbers = append(numbers, o)
		}
	}
	return numbers
}

// parseOperations reads "*" or a list of words.
func parseOperations(value string) (OperationSet, bool) {
	if value == Wildcard {
		return AllOperations, true
	}
	var set OperationSet
	for word := range strings.SplitSeq(value, ListSeparator) {
		o, ok := ParseOperation(word)
		if !ok {
			return 0, false
		}
		set |= 1 << o
	}
	return set, true
}
