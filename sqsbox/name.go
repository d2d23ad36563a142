package sqsbox

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// The name of a queue has at most 80 letters, digits, - and _ at SQS, and 255 bytes of
// almost anything in Mailbox. Names that SQS allows are used unchanged. In others each
// byte that SQS does not allow is escaped as "-_" and two hexadecimal digits. A result
// that is too long is cut, and ends in "-_H" and a hash; tags hold the whole name.
const (
	maxName    = 80
	maxPrefix  = 32
	fifoSuffix = ".fifo"
	escape     = "-_"
	hashMark   = escape + "H" // cannot be an escape: H is not a hexadecimal digit
	hashDigits = 32

	nameTag      = "mailbox-name-"
	nameTagBytes = 256
	nameTags     = 2 // enough for the base64 of driver.MaxNameBytes
)

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

func upperHex(c byte) bool { return '0' <= c && c <= '9' || 'A' <= c && c <= 'F' }

// escaped reports whether s begins with an escape, or with text that looks like one.
func escaped(s string) bool {
	return len(s) >= 4 && s[:2] == escape && upperHex(s[2]) && upperHex(s[3])
}

// physicalName returns the name of a queue at SQS, standard or FIFO.
func physicalName(prefix, name string, fifo bool) string {
	base, isFIFO := strings.CutSuffix(name, fifoSuffix)
	if base == "" {
		base, isFIFO = name, false
	}
	suffix := ""
	if isFIFO || fifo {
		suffix = fifoSuffix
	}
	var b strings.Builder
	for i := range len(base) {
		if c := base[i]; nameByte(c) && !escaped(base[i:]) && !strings.HasPrefix(base[i:], hashMark) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, escape+"%02X", c)
		}
	}
	written := b.String()
	if room := maxName - len(prefix) - len(suffix); len(written) > room {
		hash := sha256.Sum256([]byte(base))
		written = written[:room-len(hashMark)-hashDigits] + hashMark + hex.EncodeToString(hash[:])[:hashDigits]
	}
	return prefix + written + suffix
}

// logicalName is the inverse of physicalName. It reports false for names of queues
// outside the prefix, and for those that are cut.
func logicalName(prefix, physical string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(physical, prefix)
	if !ok {
		return "", false
	}
	rest, fifo := strings.CutSuffix(rest, fifoSuffix)
	if isCut(rest) {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		if !escaped(rest[i:]) {
			b.WriteByte(rest[i])
			continue
		}
		c, err := hex.DecodeString(rest[i+2 : i+4])
		if err != nil {
			return "", false
		}
		b.Write(c)
		i += 3
	}
	if fifo {
		b.WriteString(fifoSuffix)
	}
	return b.String(), b.Len() > 0
}

// isCut reports whether a name, without its FIFO suffix, ends in a hash.
func isCut(physical string) bool {
	physical = strings.TrimSuffix(physical, fifoSuffix)
	at := len(physical) - hashDigits - len(hashMark)
	return at >= 0 && strings.HasPrefix(physical[at:], hashMark)
}

// tagsOf returns the tags that hold a name that is cut.
func tagsOf(name string) map[string]string {
	text := base64.RawURLEncoding.EncodeToString([]byte(name))
	tags := make(map[string]string)
	for i := 0; len(text) > 0; i++ {
		n := min(len(text), nameTagBytes)
		tags[fmt.Sprint(nameTag, i)], text = text[:n], text[n:]
	}
	return tags
}

// nameOfTags is the inverse of tagsOf.
func nameOfTags(tags map[string]string) (name string, ok bool) {
	var text strings.Builder
	for i := range nameTags {
		text.WriteString(tags[fmt.Sprint(nameTag, i)])
	}
	whole, err := base64.RawURLEncoding.DecodeString(text.String())
	return string(whole), err == nil && len(whole) > 0
}

// checkPrefix returns ErrInvalid for a prefix that SQS does not allow in names.
func checkPrefix(prefix string) error {
	detail := ""
	if len(prefix) > maxPrefix {
		detail = fmt.Sprintf("has %d characters, at most %d are allowed", len(prefix), maxPrefix)
	}
	for i := range len(prefix) {
		if !nameByte(prefix[i]) {
			detail = "has characters other than letters, digits, - and _"
		}
	}
	if detail == "" {
		return nil
	}
	return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: "Options.Prefix", Detail: detail}
}

// nameInARN returns the last part of arn:aws:sqs:region:account:name.
func nameInARN(arn string) string {
	if parts := strings.Split(arn, ":"); len(parts) == 6 {
		return parts[5]
	}
	return ""
}
