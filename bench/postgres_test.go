package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The suite runs a short time on a real server, and its chart has a line for each queue and figure.
func TestPostgresSuiteWritesFiguresAndChart(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PostgreSQL, which takes half a minute: run it without -short")
	}
	if _, err := postgresBinary("postgres"); errors.Is(err, errMissing) && os.Getenv("MAILBOX_REQUIRE_SERVERS") == "" {
		t.Skip(err) // it says how to install it
	}
	dir := t.TempDir()
	r := &report{rounds: 1, each: 20 * time.Millisecond, dir: os.TempDir(), held: 200 * time.Millisecond, workloads: []string{"held"}, json: filepath.Join(dir, "figures.json")}
	if err := r.postgres(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.json)
	if err != nil {
		t.Fatal(err)
	}
	var results postgresResults
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	if len(results.Held) != 6 || results.Version == "" {
		t.Fatalf("got %d series on PostgreSQL %q, want 6", len(results.Held), results.Version)
	}
	for _, s := range results.Held {
		for _, w := range s.Windows {
			if w.Claims == 0 || w.ClaimP50 <= 0 || w.ClaimP99 < w.ClaimP50 || w.ClaimMax < w.ClaimP99 || w.ServerCPU <= 0 {
				t.Errorf("%s: got %+v, want claims, their times and processor time", s.Name, w)
			}
		}
	}
	image := filepath.Join(dir, "chart.svg")
	if err := writeHeldChart(image, r.json); err != nil {
		t.Fatal(err)
	}
	expectChart(t, image, 3*6)
}

// A run of some peers leaves the figures of others in the file.
func TestPostgresRunKeepsFiguresOfOtherPeers(t *testing.T) {
	r := &report{json: filepath.Join(t.TempDir(), "figures.json")}
	for _, results := range []postgresResults{
		{Version: "15", Held: []heldSeries{{Name: "river"}, {Name: "pgbox"}}, Rates: []postgresRates{{Name: "pgbox", Clients: 1, Batch: 1}, {Name: "pgbox", Clients: 4, Batch: 1}}},
		{Held: []heldSeries{{Name: "pgbox", Windows: []heldPart{{Claims: 7}}}, {Name: "table"}}},
		{Rates: []postgresRates{{Name: "pgbox", Clients: 4, Batch: 1, Rounds: make([]postgresPace, 3)}}},
	} {
		if err := r.savePostgres(&results); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readPostgres(r.json)
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != "15" || len(got.Held) != 3 || len(got.Held[1].Windows) != 1 || got.Held[2].Name != "table" || len(got.Rates) != 2 || len(got.Rates[1].Rounds) != 3 {
		t.Errorf("got %+v, want river, pgbox of the second run, table, and two rates", got)
	}
}

// expectChart expects an image that is well-formed, with so many lines.
func expectChart(t *testing.T, image string, lines int) {
	t.Helper()
	text, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := xml.NewDecoder(strings.NewReader(string(text))); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(string(text), "<polyline"); got != lines || strings.Contains(string(text), "NaN") || strings.Contains(string(text), "Inf") {
		t.Errorf("the chart has %d lines, want %d, and only numbers", got, lines)
	}
}
