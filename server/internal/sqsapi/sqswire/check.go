package sqswire

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The limits of SQS.
const (
	// MaxMessageBytes bounds a message, attributes included, and a batch.
	MaxMessageBytes = 1 << 20
	// MaxBatchEntries is how many entries a batch may have.
	MaxBatchEntries = 10
	// MaxReceive is how many messages a client can ask for at once.
	MaxReceive = 10
	// MaxAttributes is how many attributes a message may have.
	MaxAttributes = 10

	maxQueueName = 80
	maxEntryID   = 80
	maxLabel     = 80
	maxToken     = 128
)

// RequestLimit is the largest body of a request that is within all limits: 1 MiB of
// which JSON escapes each byte with six characters, and room for the rest.
const RequestLimit = 6*MaxMessageBytes + 1<<20

// FIFOSuffix ends the names of FIFO queues.
const FIFOSuffix = ".fifo"

// QueueName returns the last part of the path of a queue's URL, which is the
// queue's name, and the account before it, if there is one. A path alone and a
// bare name are accepted in place of a URL; the host is ignored.
func QueueName(url string) (account, name string) {
	path := url
	if _, behind, ok := strings.Cut(url, "://"); ok {
		_, path, _ = strings.Cut(behind, "/")
	}
	path, _, _ = strings.Cut(path, "?")
	path = strings.Trim(path, "/")
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		account, name = path[:i], path[i+1:]
		return account[strings.LastIndexByte(account, '/')+1:], name
	}
	return "", path
}

// CheckQueueName checks the name of a new queue. Errors are an *Error.
func CheckQueueName(name string, fifo bool) error {
	bare, suffixed := strings.CutSuffix(name, FIFOSuffix)
	if fifo {
		if !suffixed || len(name) > maxQueueName || !isWord(bare) {
			return InvalidParameterValue.Withf("The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length.")
		}
		return nil
	}
	if len(name) > maxQueueName || !isWord(name) {
		return InvalidParameterValue.Withf("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	return nil
}

// CheckEntries checks how many entries the batch has, and their ids. Errors are
// an *Error and concern the whole batch.
func (in *SendMessageBatchInput) CheckEntries() error {
	return checkEntries("SendMessageBatchRequestEntry", len(in.Entries), func(i int) string { return in.Entries[i].ID })
}

// CheckEntries checks how many entries the batch has, and their ids. Errors are
// an *Error and concern the whole batch.
func (in *DeleteMessageBatchInput) CheckEntries() error {
	return checkEntries("DeleteMessageBatchRequestEntry", len(in.Entries), func(i int) string { return in.Entries[i].ID })
}

// CheckEntries checks how many entries the batch has, and their ids. Errors are
// an *Error and concern the whole batch.
func (in *ChangeMessageVisibilityBatchInput) CheckEntries() error {
	return checkEntries("ChangeMessageVisibilityBatchRequestEntry", len(in.Entries), func(i int) string { return in.Entries[i].ID })
}

func checkEntries(entry string, count int, id func(i int) string) error {
	switch {
	case count == 0:
		return EmptyBatchRequest.Withf("There should be at least one %s in the request.", entry)
	case count > MaxBatchEntries:
		return TooManyEntriesInBatchRequest.Withf("Maximum number of entries per request are %d. You have sent %d.", MaxBatchEntries, count)
	}
	for i := range count {
		if len(id(i)) > maxEntryID || !isWord(id(i)) {
			return InvalidBatchEntryID.Default()
		}
		for earlier := range i {
			if id(earlier) == id(i) {
				return BatchEntryIDsNotDistinct.Withf("Id %s repeated.", id(i))
			}
		}
	}
	return nil
}

// CheckBatchSize checks the size of all messages of a batch together. Errors are
// an *Error and concern the whole batch.
func (in *SendMessageBatchInput) CheckBatchSize() error {
	size := 0
	for i := range in.Entries {
		size += MessageSize(in.Entries[i].MessageBody, in.Entries[i].MessageAttributes)
	}
	if size > MaxMessageBytes {
		return BatchRequestTooLong.Withf("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", MaxMessageBytes, size)
	}
	return nil
}

// CheckMessageSize checks the size of a message against the limit of its queue.
// Errors are an *Error, which an entry of a batch words differently.
func CheckMessageSize(body string, attributes map[string]MessageAttributeValue, limit int) error {
	if MessageSize(body, attributes) > limit {
		e := InvalidParameterValue.Withf("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", limit)
		e.EntryMessage = fmt.Sprintf("One or more parameters cannot be validated. Reason: Message must be shorter than %d bytes.", limit)
		return e
	}
	return nil
}

// MessageSize returns the bytes that count against the size limit of a message: its
// body, and names, types and values of its attributes. System attributes do not count.
func MessageSize(body string, attributes map[string]MessageAttributeValue) int {
	size := len(body)
	for name, value := range attributes {
		size += len(name) + len(value.DataType) + len(value.BinaryValue)
		if value.StringValue != nil {
			size += len(*value.StringValue)
		}
	}
	return size
}

// CheckBody checks the characters of a message's body. Errors are an *Error.
func CheckBody(body string) error {
	if !allowedText(body) {
		return InvalidMessageContents.Default()
	}
	return nil
}

// CheckGroupID checks a MessageGroupId. Errors are an *Error.
func CheckGroupID(id string) error { return checkToken("MessageGroupId", id) }

// CheckDeduplicationID checks a MessageDeduplicationId. Errors are an *Error.
func CheckDeduplicationID(id string) error { return checkToken("MessageDeduplicationId", id) }

// CheckAttemptID checks a ReceiveRequestAttemptId. Errors are an *Error.
func CheckAttemptID(id string) error { return checkToken("ReceiveRequestAttemptId", id) }

func checkToken(parameter, id string) error {
	if id == "" || len(id) > maxToken || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7F }) {
		return InvalidParameterValue.Withf("Value %.256s for parameter %s is invalid. Reason: %s can only include alphanumeric and punctuation characters. 1 to 128 in length.", id, parameter, parameter)
	}
	return nil
}

// CheckLabel checks the label of a permission. Errors are an *Error.
func CheckLabel(label string) error {
	if len(label) > maxLabel || !isWord(label) {
		return InvalidParameterValue.Withf("Value %.256s for parameter Label is invalid. Reason: Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.", label)
	}
	return nil
}

// isWord reports whether text is letters, digits, hyphens and underscores, and
// at least one of them.
func isWord(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return text != ""
}

// allowedText reports whether messages may contain text.
func allowedText(text string) bool {
	for i := 0; i < len(text); {
		if c := text[i]; ' ' <= c && c < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if !allowedCharacter(r, size) {
			return false
		}
		i += size
	}
	return true
}

// allowedCharacter reports whether messages may contain the character, which is
// size bytes long; utf8.RuneError of one byte means invalid UTF-8.
func allowedCharacter(r rune, size int) bool {
	switch {
	case r == utf8.RuneError:
		return size > 1
	case r < ' ':
		return r == '\t' || r == '\n' || r == '\r'
	default:
		return r != 0xFFFE && r != 0xFFFF
	}
}
