package urlrules_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// matrixFile is the page with the tables that the tests below read.
const matrixFile = "../../docs/backends.md"

// matrixURLs are the backends of the first table, by the heading of their column.
var matrixURLs = map[string]string{
	"memory":     "memory://orders",
	"disk":       "disk:///shop?queue=orders",
	"PostgreSQL": "postgres://127.0.0.1:5432/shop/orders",
	"Redis":      "redis://127.0.0.1:6379/orders",
	"SQS":        "sqs://eu-central-1/orders?endpoint=http://127.0.0.1:9410&create=true",
}

// openMatrix opens a queue of the backend with the configuration, and returns nil if the
// backend refuses it by trait.
func openMatrix(t *testing.T, backend driver.Backend, name string, config driver.Config) driver.Queue {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := backend.(driver.Admin).ConfigureQueue(ctx, name, config)
	if errors.Is(err, driver.ErrUnsupported) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	q, err := backend.OpenQueue(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// traitCells returns the cells of a backend by the name of the trait in the first column.
func traitCells(t *testing.T, backend driver.Backend) map[string]string {
	traits := openMatrix(t, backend, "orders", driver.Config{}).Traits()
	value := reflect.ValueOf(traits)
	cells := make(map[string]string)
	for i := range value.NumField() {
		cell := fmt.Sprint(value.Field(i).Interface())
		switch field := value.Field(i).Interface().(type) {
		case bool:
			cell = yes(field)
		case time.Duration:
			cell = shortDuration(field)
		}
		cells[value.Type().Field(i).Name] = cell
	}
	cells["StrictGroups"] = yes(openMatrix(t, backend, "strict", driver.Config{StrictGroups: true}) != nil)
	cells["GroupLimits"] = yes(openMatrix(t, backend, "limited", driver.Config{StrictGroups: true, GroupLimits: "rate=1"}) != nil)
	cells["FairGroups"] = yes(openMatrix(t, backend, "fair", driver.Config{FairGroups: true}) != nil)
	return cells
}

func yes(has bool) string {
	if has {
		return "yes"
	}
	return "–"
}

// shortDuration returns a duration without its parts that are 0, and in days if it has whole
// ones.
func shortDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == 0:
		return "–"
	case d >= day && d%day == 0:
		return fmt.Sprint(int(d/day), " d")
	}
	return regexp.MustCompile(`(\D)0[ms]`).ReplaceAllString(regexp.MustCompile(`(\D)0s$`).ReplaceAllString(d.String(), "$1"), "$1")
}

// table returns the header and the other rows of the first table of the page with a column of that name.
func table(t *testing.T, column string) (header []string, rows [][]string) {
	text, err := os.ReadFile(matrixFile)
	if err != nil {
		t.Fatal(err)
	}
	for paragraph := range strings.SplitSeq(string(text), "\n\n") {
		lines := strings.Split(strings.TrimSpace(paragraph), "\n")
		if !strings.Contains(lines[0], "| "+column+" |") {
			continue
		}
		for _, line := range lines {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
		return rows[0], rows[2:] // without the dashes
	}
	t.Fatalf("%s has no table with a column %q", matrixFile, column)
	return nil, nil
}

func TestDocumentedTraitsAreThoseOfBackends(t *testing.T) {
	header, rows := table(t, "memory")
	for column, name := range header {
		if column < 2 {
			continue // what it is, and the trait
		}
		t.Run(name, func(t *testing.T) {
			address, err := url.Parse(matrixURLs[name])
			if err != nil {
				t.Fatal(err)
			}
			if address, err = url.Parse(runnable(t, address)); err != nil {
				t.Fatal(err)
			}
			target, err := driver.ReadURL(address)
			if err != nil {
				t.Fatal(err)
			}
			backend, err := target.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer backend.Close()
			missing := traitCells(t, backend)
			if name == "PostgreSQL" || name == "Redis" {
				missing["Durability"] = "as set up"
			}
			for _, row := range rows {
				trait := strings.Trim(row[1], "`")
				if want, found := missing[trait]; !found || row[column] != want {
					t.Errorf("%s: %s of %s is %q; want %q", matrixFile, trait, name, row[column], want)
				}
				delete(missing, trait)
			}
			for trait, value := range missing {
				t.Errorf("%s has no row for %s, which is %s for %s", matrixFile, trait, value, name)
			}
		})
	}
}

// matrixDocument is the files that the names in a column are in, and how.
type matrixDocument struct{ files, pattern string }

// The names in the table of protocols are names of their documents.
func TestDocumentedOperationsAreThoseOfProtocols(t *testing.T) {
	expectNames(t, "HTTP", map[string]matrixDocument{
		"HTTP":  {"../../api/openapi.yaml", `(?m)^  %s:$`},
		"gRPC":  {"../../proto/mailbox/v1/mailbox.proto", `(?m)^  rpc %s\(`},
		"OAP/1": {"../../docs/oap.md", "(?m)^\\| `0x..` \\| %s \\|"},
		"CLI":   {"../../docs/cli.md", `(?m)^### %s$`},
		"SQS":   {"../../docs/sqs.md", `(?m)^\| .*\b%s\b.* \|`},
	})
}

// The names in the table of fields are names of the documents of protocols.
func TestDocumentedFieldsAreThoseOfProtocols(t *testing.T) {
	expectNames(t, "in JSON", map[string]matrixDocument{
		"in JSON":     {"../../api/openapi.yaml", `(?m)^        %s:$`},
		"in Protobuf": {"../../proto/mailbox/v1/*.proto", `(?m)^  .*\b%s = \d+;`},
		"in OAP/1":    {"../../docs/oap.md", `%s`},
		"flag":        {"../../docs/cli.md", "`%s`"},
		"SQS":         {"../../docs/sqs.md", `\b%s\b`},
	})
}

// expectNames compares the table that has a column of that name with documents.
func expectNames(t *testing.T, column string, documents map[string]matrixDocument) {
	t.Helper()
	header, rows := table(t, column)
	for column, name := range header {
		document, found := documents[name]
		if !found {
			continue // what it does
		}
		files, err := filepath.Glob(document.files)
		if err != nil {
			t.Fatal(err)
		}
		var text []byte
		for _, file := range files {
			more, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, more...)
		}
		for _, row := range rows {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[column], -1) {
				if !regexp.MustCompile(fmt.Sprintf(document.pattern, regexp.QuoteMeta(name[1]))).Match(text) {
					t.Errorf("%s: %s has no %q", matrixFile, document.files, name[1])
				}
			}
		}
	}
}
