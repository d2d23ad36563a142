package gates_test

import (
	"fmt"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// TestStreamChunksAreSmallerThanFrames: streams have chunks of about
// 64 KiB, which is not the limit of a frame: one message that is larger
// than a chunk comes in one frame.
func TestStreamChunksAreSmallerThanFrames(t *testing.T) {
	d := start(t, inMemory...)
	s := overHTTP(t, d, d.token)
	const messages, size, large = 200, 3 << 10, 600 << 10
	for i := range messages {
		if _, _, err := s.send(t.Context(), "many", fmt.Sprint(i), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.send(t.Context(), "large", "1", make([]byte, large)); err != nil {
		t.Fatal(err)
	}
	f, err := beginFrames(dial(t, d.oap), d.token)
	if err != nil {
		t.Fatal(err)
	}
	chunks, longest, got := peekAll(t, f, "many")
	if got != messages || longest > oap.ChunkBytes+2*size || longest < oap.ChunkBytes/2 {
		t.Errorf("%d messages came in %d chunks of up to %d bytes, want about %d", got, chunks, longest, oap.ChunkBytes)
	}
	_, frame, got := peekAll(t, f, "large")
	if got != 1 || frame < large {
		t.Errorf("a message of %d bytes came as %d in a frame of %d", large, got, frame)
	}
	t.Logf("%d messages of %d bytes in %d chunks of up to %d bytes; one of %d bytes in a frame of %d, of at most %d",
		messages, size, chunks, longest, large, frame, oap.MaxFrameBytes)
}

// peekAll peeks at a queue, and returns the number of chunks, the size of the longest,
// and the number of messages.
func peekAll(t *testing.T, f *frames, queue string) (chunks, longest, messages int) {
	t.Helper()
	answer, err := f.ask(oap.OpOpen, oap.AppendName(nil, queue))
	if err != nil || answer.Code != oap.StatusOK {
		t.Fatalf("open: status %d, %v", answer.Code, err)
	}
	opened, err := oap.ParseOpened(answer.Payload)
	if err != nil {
		t.Fatal(err)
	}
	answer, err = f.ask(oap.OpPeek, oap.AppendPeek(nil, oap.Target{Handle: opened.Handle}, &driver.Query{}))
	for {
		if err != nil || answer.Code != oap.StatusOK && answer.Code != oap.StatusMore {
			t.Fatalf("peek: status %d, %v", answer.Code, err)
		}
		peeked, err := oap.ParsePeeked(answer.Payload)
		if err != nil {
			t.Fatal(err)
		}
		messages += len(peeked)
		longest = max(longest, int(answer.Length))
		chunks++
		if answer.Code == oap.StatusOK {
			return chunks, longest, messages
		}
		credit := oap.AppendFrame(nil, &oap.Header{Flags: oap.Event, Code: oap.EventCredit, Protocol: oap.ProtocolMailbox, Correlation: answer.Correlation}, nil, oap.AppendCount(nil, 1))
		if _, err := f.Write(credit); err != nil {
			t.Fatal(err)
		}
		answer, err = f.read()
		if err != nil {
			t.Fatal(err)
		}
	}
}
