package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestFiguresAreReadFromOutput(t *testing.T) {
	for id, want := range map[string]int64{"crash": 423, "failover-kill": 2, "sentinel-hang": 2, "hostile": 15, "chaos": 9} {
		const output = `    crash_test.go:44: 423 images (123 nested), 7343 sends
 a: healthy again after 1s
 b: healthy again after 2s
    hostile_linux_test.go:94: attack looks                  done       12 refused        4
    hostile_linux_test.go:94: attack deaths                 done        3 refused       40
    chaos_test.go:227: redis: 7 disturbances (killed 4, told to stop 3); 400 messages
    rolling_test.go:99: 50 messages, 60 deliveries, 1 failed and 9 cut handlers, 2 disturbances (restarts 2)
`
		for i := range experiments {
			if e := &experiments[i]; e.ID == id && e.figure(output) != want {
				t.Errorf("%s: read %d, want %d", id, e.figure(output), want)
			}
		}
	}
}

func TestRunThatDidNothingHasFailed(t *testing.T) {
	errors, stderr := filepath.Join(t.TempDir(), "stderr"), os.Stderr
	file, err := os.Create(errors)
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = file
	defer func() { os.Stderr = stderr }()
	for command, want := range map[string]string{
		"echo %d kills":                 "",
		"echo %d":                       "its output names no kills",
		"echo %d kills; exit 7":         "exit status 7",
		"echo '--- FAIL: %d'; exit 1 #": "exit status 1; --- FAIL: 2",
	} {
		e := experiment{ID: "e", Command: command, Goal: 200, Figure: regexp.MustCompile(`(\d+) kills`), Unit: "kills"}
		result := e.run(0.01, 0)
		if result.Failure != want || (result.Figure == 2) != (want == "") {
			t.Errorf("%s: failure %q, figure %d; want failure %q", command, result.Failure, result.Figure, want)
		}
	}
	text, err := os.ReadFile(errors)
	if err != nil || strings.Count(string(text), "\n") != 3 {
		t.Errorf("printed %q, %v; want the output of the runs that failed, and of no other", text, err)
	}
}

// A pattern of go test that matches nothing would be noticed by its run only, which takes hours.
func TestExperimentsRunTestsThatExist(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	test := regexp.MustCompile(`-run '\^(\w+)\$(?:/\^(.+)\$)?' \./(\S+)$`)
	target := regexp.MustCompile(`^make -s ([a-z-]+) `)
	for i := range experiments {
		e := &experiments[i]
		if found := target.FindStringSubmatch(e.Command); found != nil {
			if !strings.Contains(string(makefile), "\n"+found[1]+": ##") {
				t.Errorf("%s: the Makefile has no target %s", e.ID, found[1])
			}
			continue
		}
		found := test.FindStringSubmatch(e.Command)
		if found == nil {
			t.Errorf("%s: no test in %q", e.ID, e.Command)
			continue
		}
		files, err := filepath.Glob("../../" + found[3] + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		var code strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
		_, body, ok := strings.Cut(code.String(), "\nfunc "+found[1]+"(t *testing.T) {\n")
		if !ok {
			t.Errorf("%s: %s has no %s", e.ID, found[3], found[1])
		}
		// Parts have their names in the test, or in a table of its file.
		if part := `"` + found[2] + `"`; found[2] != "" && !strings.Contains(body, part) && !strings.Contains(code.String(), "\t{"+part) {
			t.Errorf("%s: %s has no part %s", e.ID, found[1], part)
		}
	}
}

// A promise that counts failures of several kinds would say nothing of the rarest.
func TestEachKindOfFailureHasItsGoal(t *testing.T) {
	kinds := 0
	for i := range experiments {
		e := &experiments[i]
		if e.Goal == 200 && e.Length == "" {
			kinds++
		}
		if strings.Contains(e.Command, "|") || strings.Contains(e.Length, "each") {
			t.Errorf("%s runs several kinds: %s, %s", e.ID, e.Command, e.Length)
		}
	}
	if kinds < 10 {
		t.Errorf("%d kinds of failures have 200 as their goal, want 10", kinds)
	}
}
