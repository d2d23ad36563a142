package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

func delivery(t testing.TB) Delivery {
	t.Helper()
	return Delivery{Envelope: sealed(t), Body: payload, Receipt: "01KE0000000000000000000000.1.a"}
}

func TestDeliverySurvivesJSON(t *testing.T) {
	want := delivery(t)
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Delivery
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := got.Verify(); err != nil {
		t.Error(err)
	}
	agreesWithStandardJSON(t, text, got)
	got.Body[0]++
	if err := got.Verify(); !errors.Is(err, driver.ErrIntegrity) {
		t.Errorf("changed payload: %v, want ErrIntegrity", err)
	}
}

func TestDeliveryIsReadStrictly(t *testing.T) {
	d := delivery(t)
	text, err := d.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	body := `"payload_b64":"dHdvIG9mIHRob3NlLCBwbGVhc2U="`
	if !strings.Contains(good, body) {
		t.Fatalf("no %s in %s", body, good)
	}
	for name, bad := range map[string]string{
		"no payload":          strings.Replace(good, body+",", "", 1),
		"no padding":          strings.Replace(good, "U=", "U", 1),
		"trailing bits":       strings.Replace(good, "U=", "V=", 1),
		"a line break":        strings.Replace(good, "dHdv", `dHdv\n`, 1),
		"URL-safe letters":    strings.Replace(good, "dHdv", "-_-_", 1),
		"a payload twice":     strings.Replace(good, body, body+","+body, 1),
		"no receipt":          strings.Replace(good, `,"receipt":"`+d.Receipt+`"`, "", 1),
		"a number as receipt": strings.Replace(good, `"`+d.Receipt+`"`, "1", 1),
		"a long receipt":      strings.Replace(good, d.Receipt, strings.Repeat("r", maxReceiptBytes+1), 1),
		"an envelope":         encoded(t),
	} {
		if bad == good {
			t.Fatalf("%s: nothing was changed", name)
		}
		if got, err := parseDelivery([]byte(bad)); !errors.Is(err, driver.ErrEncoding) || got.ID != "" {
			t.Errorf("%s: %v, want ErrEncoding", name, err)
		}
	}
}

// TestDeliveriesDoNotPrintTheirContents checks that body, attributes and receipt reach
// no log, with any verb.
func TestDeliveriesDoNotPrintTheirContents(t *testing.T) {
	d := delivery(t)
	d.Body = []byte("c4n4ry")
	d.Attributes["secret"] = "c4n4ry"
	d.Receipt = "c4n4ry"
	var out bytes.Buffer
	for _, verb := range strings.Split("vsqxXdTtbcoOUeEfFgGp", "") {
		for _, flags := range []string{"", "+", "#", " ", "-10", "0"} {
			if verb == "T" || verb == "p" {
				continue // these print the type and the address
			}
			fmt.Fprintf(&out, "%"+flags+verb+"\n", d)
			fmt.Fprintf(&out, "%"+flags+verb+"\n", &d)
			fmt.Fprintf(&out, "%"+flags+verb+"\n", []Delivery{d})
			fmt.Fprintf(&out, "%"+flags+verb+"\n", map[string]any{"d": d})
		}
	}
	fmt.Fprintln(&out, d, &d, d.String())
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("received", "delivery", d, "pointer", &d)
	}
	for _, form := range []string{"c4n4ry", "63346e347279", "63346E347279", "99 52 110", "YzRuNHJ5", "0x63"} {
		if strings.Contains(out.String(), form) {
			t.Errorf("%s was printed", form)
		}
	}
	if !strings.Contains(out.String(), d.ID) {
		t.Error("not even the id was printed")
	}
}

func TestLoggedDeliveryNamesItsQueue(t *testing.T) {
	d := delivery(t)
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("received", "delivery", d)
	if want := "delivery.queue=" + d.Queue + " "; !strings.Contains(out.String(), want) {
		t.Errorf("the line is %q, want %q in it", out.String(), want)
	}
}

func FuzzParseDelivery(f *testing.F) {
	d := delivery(f)
	text, err := d.AppendJSON(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parseDelivery(data)
		if err != nil {
			if !errors.Is(err, driver.ErrEncoding) {
				t.Fatal(err)
			}
			return
		}
		agreesWithStandardJSON(t, data, d)
		text, err := d.AppendJSON(nil)
		if err != nil {
			t.Fatalf("a parsed delivery cannot be encoded: %v", err)
		}
		if again, err := parseDelivery(text); err != nil || !reflect.DeepEqual(again, d) {
			t.Fatalf("the delivery changed: %v", err)
		}
	})
}

func FuzzParseSignature(f *testing.F) {
	f.Add(sigText(f))
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseSignature(text); err == nil && s.String() != text {
			t.Fatalf("%q reads as %s", text, s)
		}
	})
}
