package oap_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/oap.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryCodeIsInTheDocument compares the constants with the tables.
func TestEveryCodeIsInTheDocument(t *testing.T) {
	source, err := os.ReadFile("code.go")
	if err != nil {
		t.Fatal(err)
	}
	text := document(t)
	found := 0
	for _, match := range regexp.MustCompile(`(?m)^\t((?:Op|Event|Status)\w+)\s+uint16 = (\w+)`).FindAllStringSubmatch(string(source), -1) {
		found++
		row := "| `" + match[2] + "` |"
		if strings.HasPrefix(match[1], "Status") {
			row = match[2]
		}
		if !strings.Contains(text, row) {
			t.Errorf("%s (%s) is not in docs/oap.md", match[1], match[2])
		}
	}
	if found < 40 {
		t.Errorf("only %d constants found", found)
	}
	for _, limit := range []int{oap.MaxFrameBytes, oap.EarlierFrameBytes, oap.EarlierPayloadBytes, oap.MaxCapabilityBytes, oap.MaxWindow} {
		if n := fmt.Sprint(limit); !strings.Contains(strings.ReplaceAll(text, ",", ""), n) {
			t.Errorf("the limit %s is not in docs/oap.md", n)
		}
	}
}

func TestDocumentExampleIsTrue(t *testing.T) {
	_, example, _ := strings.Cut(document(t), "## Example")
	_, example, _ = strings.Cut(example, "```\n")
	example, _, _ = strings.Cut(example, "```")
	stream, err := hex.DecodeString(strings.Join(strings.Fields(example), ""))
	if err != nil {
		t.Fatal(err)
	}
	request, rest, need, err := oap.Next(stream)
	if err != nil || need > 0 || request.Code != oap.OpStats || request.Flags != oap.Request {
		t.Fatalf("%+v, %d, %v", request, need, err)
	}
	if target, err := oap.ParseTarget(request.Payload); err != nil || target != (oap.Target{Handle: 1}) {
		t.Errorf("%+v, %v", target, err)
	}
	answer, rest, need, err := oap.Next(rest)
	if err != nil || need > 0 || len(rest) > 0 || answer.Code != oap.StatusOK || answer.Correlation != request.Correlation {
		t.Fatalf("%+v, %d, %v", answer, need, err)
	}
	if stats, err := oap.ParseStats(answer.Payload); err != nil || stats != (driver.Stats{Ready: 2, InFlight: 1}) {
		t.Errorf("%+v, %v", stats, err)
	}
}
