package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// varying matches the parts of error texts that differ from message to message: quoted
// texts, long hexadecimal and mixed ids, and numbers.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-fA-F]{8,}\b|\d+(?:[.:]\d+)*`)

// The characters of an error text that are compared, before and after what varies was replaced.
const maxCauseText, maxCauseWords = 500, 200

// causeWords returns an error text with … in place of what varies, in one line.
func causeWords(text string) string {
	text = strings.Join(strings.Fields(firstCharacters(text, maxCauseText)), " ")
	return firstCharacters(varying.ReplaceAllString(text, "…"), maxCauseWords)
}

// firstCharacters returns the first n characters of a text, with … if it has more.
func firstCharacters(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i] + "…"
		}
		n--
	}
	return text
}

// Cause returns what a dead letter has in common with others: an id made of the reason, the type of
// the error and its text without the parts that differ from message to message, and that text.
func (p *Peeked) Cause() (id, words string) {
	words = causeWords(p.LastError)
	sum := sha256.Sum256([]byte(string(p.Reason) + "\x00" + p.ErrorType + "\x00" + words))
	return hex.EncodeToString(sum[:6]), words
}
