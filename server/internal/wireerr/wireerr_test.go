package wireerr_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// codes reads the codes of package driver from its source, so that a new code that
// is missing here fails the tests.
func codes(t *testing.T) map[string]driver.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../../driver/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]driver.Code)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "Err") {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found[spec.Names[0].Name] = driver.Code(text)
		}
		return true
	})
	if len(found) < 20 {
		t.Fatalf("found only %d codes", len(found))
	}
	return found
}

func TestEveryCodeSurvivesTheWire(t *testing.T) {
	for name, code := range codes(t) {
		sent := &driver.Error{Code: code, Op: "send", Queue: "orders", MessageID: "7", Field: "receipt", Detail: "at most 9", RetryAfter: 1500 * time.Millisecond}
		wire := wireerr.Of(fmt.Errorf("wrapped: %w", sent))
		if back := wire.Driver(); !errors.Is(back, code) || back.Error() != sent.Error() {
			t.Errorf("%s: %v came back as %v", name, sent, back)
		}
		if wire.Row().HTTP < 400 || wire.Row().GRPC == 0 {
			t.Errorf("%s has no status: %+v", name, wire.Row())
		}
	}
}

func TestFieldsAreSpelledAsInRequests(t *testing.T) {
	for field, want := range map[string]string{
		"Body": "payload", "DedupKey": "idem_key", "Visibility": "visibility_ms", "name": "topic", "MaxDeliveries": "max_attempts",
		"MaxInFlight": "max_in_flight", "StrictGroups": "strict_groups", "MaxHold": "max_hold_ms", "msg_ids": "msg_ids", "": "",
		"X-Idempotency-Mode": "X-Idempotency-Mode",
	} {
		if got := wireerr.Of(&driver.Error{Code: driver.ErrInvalid, Field: field}).Field; got != want {
			t.Errorf("%s is %s on the wire, want %s", field, got, want)
		}
	}
}

func TestStatusesMatchTheSpecification(t *testing.T) {
	for code, want := range map[driver.Code]struct {
		wire string
		http int
	}{
		driver.ErrInvalid:         {"E_SCHEMA", 400},
		driver.ErrUnauthenticated: {"E_CAP_AUTH", 401},
		driver.ErrForbidden:       {"E_CAP_SCOPE", 403},
		driver.ErrNotFound:        {"E_NOT_FOUND", 404},
		driver.ErrReceiptExpired:  {"E_NOT_FOUND", 404},
		driver.ErrConflict:        {"E_DUPLICATE", 409},
		driver.ErrTooLarge:        {"E_FRAME_TOO_LARGE", 413},
		driver.ErrIntegrity:       {"E_INTEGRITY", 422},
		driver.ErrFull:            {"E_SATURATED", 429},
		driver.ErrUnavailable:     {"E_UNAVAILABLE", 503},
	} {
		wire := wireerr.Of(&driver.Error{Code: code})
		if wire.Code != want.wire || wire.Row().HTTP != want.http {
			t.Errorf("%s: got %s %d, want %s %d", code, wire.Code, wire.Row().HTTP, want.wire, want.http)
		}
		if retries := want.http == 429 || want.http == 503; (wire.RetrySeconds() > 0) != retries {
			t.Errorf("%s: Retry-After is %d", code, wire.RetrySeconds())
		}
	}
}

func TestCausesInsideTheBackendAreHidden(t *testing.T) {
	wire := wireerr.Of(&driver.Error{Code: driver.ErrUnavailable, Err: errors.New("dial 10.0.0.7: secret")})
	if strings.Contains(wire.Message(), "secret") {
		t.Errorf("the message shows the cause: %s", wire.Message())
	}
	for _, path := range []string{"/srv/Secret/queues", `C:\secret\queues`} {
		full := &driver.Error{Code: driver.ErrFull, Op: "send", Field: path, Detail: "too little space"}
		if wire := wireerr.Of(full); wire.Field != "" || wire.Message() != "mailbox: send: full: too little space (retry after 1s)" {
			t.Errorf("a full disk became %+v, %s", wire, wire.Message())
		}
	}
	if wire := wireerr.Of(errors.New("secret")); strings.Contains(wire.Message(), "secret") || wire.Code != wireerr.CodeUnavailable {
		t.Errorf("an unknown error became %+v", wire)
	}
	if wire := wireerr.Of(context.Canceled); wire.Code != wireerr.CodeUnavailable {
		t.Errorf("a cancelled request became %+v", wire)
	}
}

func TestReasonOfRefusalSurvivesTheWire(t *testing.T) {
	refusal := &driver.Error{Code: driver.ErrForbidden, Err: capability.ReasonQueue}
	if back := wireerr.Of(refusal).Driver(); capability.ReasonOf(back) != capability.ReasonQueue {
		t.Errorf("the reason became %q", capability.ReasonOf(back))
	}
}

// TestDocumentExplainsEveryCode: docs/errors.md has a row for each code, with its form on the wire.
func TestDocumentExplainsEveryCode(t *testing.T) {
	page, err := os.ReadFile("../../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, code := range codes(t) {
		wire := wireerr.Of(&driver.Error{Code: code})
		row := fmt.Sprintf("\n| `%s` | `%s` | `%s` | %d | ", name, wire.Kind, wire.Code, wire.Row().HTTP)
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/errors.md has no row %q", row)
		}
	}
}
