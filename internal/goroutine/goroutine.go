// Package goroutine returns the stack of a goroutine. It is for diagnosing what a
// stuck handler is doing, and for nothing else: no decision may depend on the
// number of a goroutine.
package goroutine

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
)

// ID returns the number of the calling goroutine, parsed from its stack trace,
// which is the only source of it; 0 if it cannot be parsed.
func ID() int64 {
	var buffer [64]byte
	header := buffer[:runtime.Stack(buffer[:], false)]
	header = bytes.TrimPrefix(header, []byte("goroutine "))
	number, _, _ := bytes.Cut(header, []byte(" "))
	id, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// stacksMax bounds the size of all stacks that are read to find one.
const stacksMax = 8 << 20

// Stack returns the stack of the goroutine with this number, and all stacks if
// it cannot be found. It stops the world, so use it only
// for diagnosis.
func Stack(id int64) string {
	buffer := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buffer, true)
		if n < len(buffer) || len(buffer) >= stacksMax {
			buffer = buffer[:n]
			break
		}
		buffer = make([]byte, 2*len(buffer))
	}
	header := fmt.Appendf(nil, "goroutine %d ", id)
	for stack := range bytes.SplitSeq(buffer, []byte("\n\n")) {
		if bytes.HasPrefix(stack, header) {
			return string(stack)
		}
	}
	return string(buffer)
}
